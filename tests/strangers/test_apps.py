"""Applications as people write them: no false fail, no false page within a day, the numbers right, the remedy named.

Each runs in a process of its own, with the server its author would take, and is asked what its users ask. Judged are
its trace log, and what its author sees while it runs: the monitor's verdicts, its page, and the application's own log.
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.strangers.app_truths import APPLICATIONS, GOLD, WITH_GOLD
from tests.support.stranger_apps import APPS, run
from tests.support.strangers import Truth, assert_true, judge, judge_day

REQUESTS = 800
"""Of a simulated day, at least."""
_SEEN = Counter()


def name_of(application):
    """The name of a stranger; a second one of the same file has its remedy in ragmon.toml."""
    _SEEN[application.file] += 1
    return application.file + (" mended" if _SEEN[application.file] > 1 else "")


def seen_by_the_author(application, ran):
    """What is not as it should be in what the application's author sees while it runs."""
    gates = {gate["gate"]: gate for gate in ran.status["gates"]}
    if (pipelines := {gate["pipeline"] for gate in gates.values()}) != {application.pipeline}:
        yield f"gates of {sorted(pipelines)} are shown; {application.pipeline} is the only pipeline"
    for name, gate in gates.items():
        if gate["verdict"] == "fail" and name not in application.truth.fails:
            yield f"gate {name} fails on the page: {gate['reason']}"
    (captured,) = (found for found in ran.status["captured"] if found["source"] == "live")
    for name, share in application.captured.items():
        counted = captured["fields"][name]
        if not counted["of"] or counted["present"] / counted["of"] != share:
            yield f"{name}: {counted}, not {share:.0%}"
    yield from (
        f"{words!r} is not in the log of the application" for words in application.logged if words not in ran.errors
    )
    if not application.logged and f"{application.pipeline}, live: " in ran.errors:
        yield f"the log complains though nothing is missing: {ran.errors}"
    if "Traceback" in ran.errors:
        yield ran.errors


@pytest.mark.slow
@pytest.mark.parametrize("application", APPLICATIONS, ids=name_of)
def test_an_application_is_judged_truly(application, tmp_path):
    gold = GOLD if WITH_GOLD in application.config else ()
    (tmp_path / "app").mkdir()
    ran = run(application.file, tmp_path / "app", application.questions, application.users, application.config, gold)
    wrong = list(seen_by_the_author(application, ran))
    assert not wrong, "\n- ".join(["what its author sees is not what is true:", *wrong])
    config = application.config.replace("gold.jsonl", str(tmp_path / "app" / "gold.jsonl"))
    assert_true(judge(tmp_path, ran.log, config=config, day=REQUESTS), application.truth)


def test_every_application_has_its_truth_and_fits_a_page():
    shared = {"handbook", "model_server"}
    files = {path.stem: path for path in APPS.glob("*.py")}
    assert len(files) - len(shared) >= 20
    assert files.keys() - shared == {application.file for application in APPLICATIONS}
    assert {name for name, path in files.items() if len(path.read_text().splitlines()) > 75} <= shared


@pytest.mark.slow
def test_until_noon_nobody_is_paged_for_the_index_that_breaks_then(tmp_path):
    (breaking,) = (application for application in APPLICATIONS if application.file == "index_breaks")
    ran = run(breaking.file, tmp_path, breaking.questions, config=breaking.config, gold=GOLD)
    morning = tmp_path / "morning.jsonl"
    records = [line for line in ran.log.read_text().splitlines(keepends=True) if '"totals"' not in line]
    assert len(records) == len(breaking.questions)
    morning.write_text("".join(records[:120]))
    assert_true(judge_day(tmp_path, morning, config=breaking.config), Truth())
