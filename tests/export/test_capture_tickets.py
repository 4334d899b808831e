"""What is not captured is one ticket with its remedy, and nobody's page: real monitors, rules and a real Prometheus."""

from __future__ import annotations

import json
import time

import pytest

from ragmon.core.record import Latency
from ragmon.export.rules import render, rule_groups
from ragmon.monitor.embedded import Monitor
from ragmon.testing import make_record
from tests.export.test_runbook_links import at_once
from tests.support.servers import prometheus

GOLD = [
    {"qid": f"q{n}", "question": f"Question {n}?", "answerable": True, "gold_citations": [f"d{n}"]}
    | {"gold_claim_substr": ["an answer"]}
    for n in range(8)
]
LACKING = {
    "ids": {"retrieved": None, "citations": None},
    "citations": {"citations": None},
    "question": {"q": None, "qid": None},
}
"""Fields that are not captured, by what is missing."""


def ask(monitor, lacking):
    """Eighty requests of users."""
    for number in range(80):
        whole = {
            "qid": None,
            "q": f"Question {number % 8}?",
            "claim": "an answer",
            "retrieved": [f"d{number % 8}"],
            "citations": [f"d{number % 8}"],
            "latency_ms": Latency(total=500.0),
        }
        monitor.submit(make_record(source="live", pipeline="shop", ts=time.time(), **(whole | lacking)))


def urgent(real, configured, folder, lacking):
    """Pages and tickets that fire for a pipeline whose records lack something; their summaries and descriptions."""
    (folder / "gold.jsonl").write_text("\n".join(map(json.dumps, GOLD)))
    settings = configured('[gold.gold]\npath = "gold.jsonl"\n[alarms]\nfalse_pages_per_30d = 1.0\n')
    (folder / "rules.yml").write_text(at_once(render(rule_groups(settings))).replace("interval: 1m", "interval: 1s"))
    with Monitor(settings).start("127.0.0.1:0") as monitor:
        ask(monitor, lacking)
        with prometheus(real("prometheus"), folder, [monitor.address], [folder / "rules.yml"]) as watching:
            watching.wait_for("count(rag_e2e_latency_seconds_count) > bool 0", 1)
            ask(monitor, lacking)  # counters must be seen to grow
            watching.wait_for("sum(increase(rag_e2e_latency_seconds_count[1h])) > bool 0", 1)
            watching.wait_for('count(ALERTS{alertname="RagmonWatchdog",alertstate="firing"})', 1)
            seen = watching.value("sum(count_over_time(ragmon_gate_unknown[1h]))")
            more = f"sum(count_over_time(ragmon_gate_unknown[1h])) >= bool {seen + 4 * len(monitor.outcomes())}"
            watching.wait_for(more, 1)  # the rules have been evaluated since
            alerts = watching.ask("alerts")["alerts"]
    return {
        one["labels"]["alertname"]: one["annotations"]["description"]
        for one in alerts
        if one["labels"]["severity"] in ("page", "ticket") and one["labels"].get("pipeline") == "shop"
    }


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["ids", "question"])
def test_a_pipeline_that_captures_too_little_to_be_judged_has_one_ticket_with_its_remedy(
    real, configured, tmp_path, missing
):
    found = urgent(real, configured, tmp_path, LACKING[missing])
    assert set(found) == {"RagmonCaptureGap"}
    remedy = {"ids": "ragmon.record(retrieved=documents)", "question": '@ragmon.trace(question="body.question")'}
    assert f"0% have {missing} (" in found["RagmonCaptureGap"]
    assert remedy[missing] in found["RagmonCaptureGap"]
    assert "have citations" not in found["RagmonCaptureGap"]


@pytest.mark.slow
@pytest.mark.parametrize("lacking", [{}, LACKING["citations"]], ids=["nothing", "it never cites"])
def test_a_pipeline_that_lacks_nothing_or_never_cites_has_none(real, configured, tmp_path, lacking):
    assert urgent(real, configured, tmp_path, lacking) == {}
