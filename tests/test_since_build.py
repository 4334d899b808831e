"""`ragmon gate --since-build` end to end: one build, judged while its traces come in."""

from __future__ import annotations

import pytest
from command_line import gold, lines, ragmon, traces

ALL_WRONG = {*(f"a{n}" for n in range(40)), *(f"u{n}" for n in range(20))}
OLD_AND_NEW = [*traces(wrong=ALL_WRONG, build="1.0"), *traces(build="1.1")]


@pytest.fixture
def judge(tmp_path):
    """`ragmon gate` on traces of the 60 gold items."""

    def gate(run, *options):
        files = lines(tmp_path / "traces.jsonl", run), "--gold", lines(tmp_path / "gold.jsonl", gold())
        return ragmon("gate", *files, *options)

    return gate


def verdicts(done):
    return {entry["gate"]: entry["verdict"] for entry in done.json["gates"]}


def test_one_build_is_judged_and_the_whole_is_not(judge):
    """40 of 40 right answers prove a precision of .80; 20 refusals of 20 do not prove that 5 % are answered at most."""
    done = judge(OLD_AND_NEW, "--since-build", "1.1", "--format", "json")
    assert done.code == 2
    assert verdicts(done) == {
        "answer_precision": "pass",
        "citation_hit_rate": "pass",
        "under_refusal_rate": "insufficient",
        "over_refusal_rate": "insufficient",
        "compliance": "insufficient",
        "citation_scope": "insufficient",
        "coverage": "pass",
        "empty_retrieval_rate": "insufficient",
        "error_rate": "insufficient",
    }
    assert judge(OLD_AND_NEW).code == 1


def test_more_traces_of_the_build_decide_what_was_open(judge):
    done = judge([*OLD_AND_NEW, *[t for _ in range(6) for t in traces(build="1.1")]], "--since-build", "1.1")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("\nverdict: pass\n")


def test_the_table_says_why_and_for_which_build(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.0")
    assert (done.code, done.err) == (1, "")
    rows = {line.split()[0]: line for line in done.out.splitlines()}
    assert "since build 1.0: proven broken by 60 samples, however often it is asked" in rows["default/answer_precision"]
    assert "since build 1.0: 20 of at least 30 samples; about 115 needed" in rows["default/under_refusal_rate"]
    assert "note: records of build 1.0 alone; the intervals hold at all looks together" in done.out.splitlines()


def test_json_holds_the_build_alone(judge):
    """Its note goes to stderr: the report has no place for it."""
    done = judge(OLD_AND_NEW, "--since-build", "1.1", "--format", "json")
    assert done.err == "note: records of build 1.1 alone; the intervals hold at all looks together\n"
    (series,) = [found for found in done.json["series"] if found["gold"]]
    assert series["metrics"]["answer_precision"]["n"] == 40
    gate = next(found for found in done.json["gates"] if found["gate"] == "answer_precision")
    assert (gate["value"], gate["n"], gate["needed"], gate["upper"]) == (1.0, 40, None, 1.0)
    assert 0.80 < gate["lower"] < 0.90  # an interval for one look would begin at .91


def test_markdown_has_the_same_verdict(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.0", "--format", "md")
    assert (done.code, done.out.splitlines()[0]) == (1, "# Gates: ❌ fail")


@pytest.mark.parametrize(("choice", "code"), [("fail", 1), ("pass", 0)])
def test_on_insufficient_counts_it_as_told(judge, choice, code):
    assert judge(OLD_AND_NEW, "--since-build", "1.1", "--on-insufficient", choice).code == code


def test_the_estimand_may_be_chosen(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.1", "--estimand", "questions_like_these")
    assert "since build 1.1: 20 of at least 30 gold items; about 115 gold items needed" in done.out


def test_user_traffic_is_judged_as_probes_are(judge):
    live = [{**trace, "source": "live"} for trace in traces(wrong=ALL_WRONG, build="1.1")]
    done = judge(live, "--since-build", "1.1", "--format", "json")
    sources = {found["gate"]: found["source"] for found in done.json["gates"]}
    assert (sources["answer_precision"], sources["compliance"]) == ("match", "live")
    assert verdicts(done)["answer_precision"] == "fail"


def test_a_build_nobody_has_seen_is_refused_with_the_nearest(judge):
    done = judge(traces(build="release-7"), "--since-build", "release-8")
    assert done.error == ("unknown build: 'release-8'", "did you mean release-7?")


def test_traces_without_a_build_are_refused(judge):
    assert judge(traces(), "--since-build", "1").error == ("unknown build: '1'", "none are defined")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--baseline", "traces.jsonl"],
            "--baseline does not go with --since-build: it holds for one look; `ragmon compare` holds for all",
        ),
        (
            ["--duplicates", "last"],
            "--duplicates does not go with --since-build: it chooses among the answers of all builds",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(judge, options, message):
    done = judge(OLD_AND_NEW, "--since-build", "1.1", *options)
    assert done.error == (message, "ragmon gate --help")


def test_whoever_deploys_asks_until_there_is_a_verdict(judge, tmp_path):
    """Flawless answers, judged at .80 as they come in."""
    config = tmp_path / "ragmon.toml"
    config.write_text("[gates]\nanswer_precision.at_least = 0.8\n")
    run = list(traces(unanswerable=0, build="2"))
    codes = [judge(run[:seen], "--since-build", "2", "--config", config).code for seen in (10, 29, 30)]
    assert codes == [2, 2, 0]
