"""An hour of the tutorial's bot with three faults: three incidents, the same wherever somebody looks.

The bot, its gold and its gates are those of the tutorial's pages, and so are the switches that break it. Minutes pass
as fast as they can be counted; Prometheus and Alertmanager are real.
"""

from __future__ import annotations

import html
import json
import re
import types
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from msgspec import structs

import ragmon
from ragmon.config.load import load
from ragmon.core.record import Latency
from ragmon.export.rules import render, rule_groups
from ragmon.server.state import Clock
from ragmon.testing import FakeClock, capture_traces
from tests.server.test_paging import impatient, pages
from tests.support.alarming import NOON
from tests.support.alertmanagers import alertmanager_in, listening
from tests.support.command_line import ragmon as command
from tests.support.deployed import document
from tests.support.example_pages import blocks
from tests.support.servers import prometheus
from tests.support.serving import PORTS, Running, accounted, journalled, send_body, serving, whole
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial"
USERS = 30
"""Questions of users a minute, beside each gold question once."""
LEARNED = 70
"""Minutes in which all is well before the hour begins."""
FAULTS = {"INDEX": ("wrong", 5, 25), "PROMPT": ("careless", 15, 33), "PARSER": ("old", 45, 60)}
"""The switches of the bot, with the minutes of the hour in which each is on: the first two overlap."""
SENTENCES = (
    r"support: since 01:15 UTC retrieval misses the right documents \(index \w+\), 75 % of gold questions",
    r"support: since 01:25 UTC unanswerable questions are answered.*, 100 % of gold questions",
    r"support: since 01:55 UTC answers cite documents that were not retrieved, 100 % of requests",
)


def typed(page, name):
    """What a page has its reader write into a file."""
    text = (TUTORIAL / f"{page}.md").read_text(encoding="utf-8")
    (block,) = (block for block in blocks(text, "bash") if re.search(rf"cat >>? {re.escape(name)} <<", block))
    return re.search(rf"cat >>? {re.escape(name)} <<'EOF'\n(.*?^)EOF$", block, re.DOTALL | re.MULTILINE)[1]


def minute_of(numbers, minute, switches, monkeypatch):
    """The records of what the bot answers in a minute, its switches as they are in its environment."""
    for name in FAULTS:
        monkeypatch.delenv(name, raising=False)
    for name, value in switches.items():
        monkeypatch.setenv(name, value)
    bot = types.ModuleType("bot")
    exec(typed("install", "bot.py"), vars(bot))

    @ragmon.trace(name="support")
    def ask(question, session):
        passages = bot.retrieve(question)
        ragmon.record(retrieved=passages, session=session, index_hash=bot.INDEX_HASH)
        return bot.complete(question, passages)

    gold = [json.loads(line) for line in typed("break", "gold.jsonl").splitlines()]
    asked = [(f"{gold[k % len(gold)]['question']} My number is {next(numbers)}.", "live", None) for k in range(USERS)]
    asked += [(item["question"], "probe", item["qid"]) for item in gold]
    with capture_traces() as records:
        for question, _, _ in asked:
            ask(question, f"session {next(numbers)}")
    for place, (record, (_, source, qid)) in enumerate(zip(records, asked, strict=True)):
        yield structs.replace(
            record,
            trace_id=f"{next(numbers):032x}",
            ts=60.0 * minute + round(60 * place / len(asked), 3),
            source=source,
            qid=qid,
            latency_ms=Latency(total=300.0 + 7.0 * (37 * place % 20)),
        )


@dataclass(frozen=True)
class Hour:
    """What came of it: the server, its folder, what the webhook was told, and the incidents, the first one first."""

    running: Running
    folder: Path
    told: list
    incidents: list


@pytest.fixture(scope="module")
def hour(tmp_path_factory):
    """The hour has passed; the server still runs."""
    folder = tmp_path_factory.mktemp("hour")
    gates = typed("break", "ragmon.toml").replace('source = "match"', 'source = "probe"')
    text = f'[pipeline]\nname = "support"\n[sampling]\nrate = 1.0\n[capture]\ncontent = "full"\n{gates}'
    (folder / "gold.jsonl").write_text(typed("break", "gold.jsonl"), encoding="utf-8")
    (folder / "rules.toml").write_text(text + PORTS, encoding="utf-8")
    rules = render(rule_groups(load(folder / "rules.toml", environ={})))
    (folder / "rules.yml").write_text(rules.replace("keep_firing_for: 2m", "keep_firing_for: 2s"))
    moved, numbers = FakeClock(60.0 * NOON), count(1)
    with ExitStack() as stack:
        monkeypatch = stack.enter_context(pytest.MonkeyPatch.context())
        hook, told = stack.enter_context(listening())
        (folder / "alertmanager.yml").write_text(json.dumps(impatient(document("alertmanager.yml"), hook)))
        manager = stack.enter_context(alertmanager_in(folder))
        running = stack.enter_context(serving(folder, text, clock=Clock(wall=moved, passed=moved)))
        place = running.admin.removeprefix("http://")
        stack.enter_context(prometheus("prometheus", folder, [place], [folder / "rules.yml"], [manager]))
        for minute in range(-LEARNED, 60):
            switches = {name: value for name, (value, begin, end) in FAULTS.items() if begin <= minute < end}
            sent = list(minute_of(numbers, NOON + LEARNED + minute, switches, monkeypatch))
            moved.now = 60.0 * (NOON + LEARNED + minute) + 59.9
            send_body(running, whole(sent))
            accounted(running)
            moved.advance(0.1)
            if any(minute == end - 1 for _, _, end in FAULTS.values()):
                begun = sum(minute > begin for _, begin, _ in FAULTS.values())
                wait_for(lambda expected=begun: len(pages(told)) == expected)
        yield Hour(running, folder, told, list(reversed(api(running))))


def api(running):
    """`/api/incidents`, the newest first."""
    return json.loads(running.get("/api/incidents")[1])["incidents"]


def test_three_faults_are_three_confirmed_incidents_each_with_its_own_cause(hour):
    assert [incident["severity"] for incident in hour.incidents] == ["confirmed"] * 3
    assert [incident["cause"]["trait"] for incident in hour.incidents] == [
        "retrieved no gold document",
        "answered what cannot be answered",
        "cited what was not retrieved",
    ]


def test_the_pager_rings_three_times(hour):
    first, *_ = rung = [page["annotations"]["summary"] for page in pages(hour.told)]
    assert [page["labels"]["incident"] for page in pages(hour.told)] == [one["incident"] for one in hour.incidents]
    for summary, sentence in zip(rung, SENTENCES, strict=True):
        assert re.fullmatch(sentence, summary)
    over = re.sub(r"01:15 to 01:\d\d UTC", "since 01:15 UTC", hour.incidents[0]["summary"])
    assert over == first


def test_the_pages_tell_of_each(hour):
    """The overview has those that last, the worst first; the list of incidents has all, and each has a page."""
    listed, overview = hour.running.get("/incidents")[1], hour.running.get("/")[1]
    for incident in hour.incidents:
        code, page = hour.running.get(f"/incidents/{incident['incident']}")
        assert code == 200
        shown = html.escape(incident["summary"])
        assert shown in page
        assert shown in listed
        assert (shown in overview) == (incident["ended"] is None)


def test_the_terminal_tells_of_each(hour):
    top = command("top", "--once", "--url", hour.running.admin)
    assert top.code == 0, top.err
    unfolded = " ".join(top.out.split())
    for incident in hour.incidents:
        why = command("why", incident["incident"], "--url", hour.running.admin)
        assert why.out.splitlines()[0] == incident["summary"]
        assert (incident["summary"] in unfolded) == (incident["ended"] is None)
        form = command("why", incident["incident"], "--format", "json", "--url", hour.running.admin)
        now = json.loads(form.out)["now"]
        assert now == (incident["ended"] or now), "it explains the incident, and not what came after it"


def test_a_replay_of_the_journal_tells_the_same_in_its_lines_and_its_reports(hour, tmp_path):
    lines, report = tmp_path / "incidents.jsonl", tmp_path / "report"
    state = ("--journal", hour.folder / "state", "--config", hour.folder / "ragmon.toml", "--incidents-out", lines)
    for form in ("json", "md", "html"):
        done = command("replay", *map(str, state), "--format", form, "--output", str(report))
        assert done.code == 0, done.err
        told = report.read_text(encoding="utf-8")
        if form == "json":
            found = json.loads(told)["incidents"]
            assert [entry["summary"] for entry in found] == [incident["summary"] for incident in hour.incidents]
        else:
            assert all(
                html.escape(incident["summary"]) in html.escape(html.unescape(told)) for incident in hour.incidents
            )
    began = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert {(line["incident"], line["began"]) for line in began if line["severity"] == "confirmed"} == {
        (incident["incident"], incident["began"]) for incident in hour.incidents
    }


def test_a_notebook_tells_the_same_of_the_records(hour):
    report = ragmon.replay(journalled(hour.folder), config=hour.folder / "ragmon.toml", incidents=True)
    assert [told.summary for told in report.incidents] == [incident["summary"] for incident in hour.incidents]
    shown = html.unescape(report._repr_html_())
    assert all(incident["summary"] in shown for incident in hour.incidents)
