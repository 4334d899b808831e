"""`ragmon gate --since-build` end to end: one build, judged while its traces come in."""

from __future__ import annotations

import pytest

from tests.support.command_line import gold, lines, ragmon, traces

ALL_WRONG = {*(f"a{n}" for n in range(40)), *(f"u{n}" for n in range(20))}
OLD_AND_NEW = [*traces(wrong=ALL_WRONG, build="1.0"), *traces(build="1.1")]
ASKED = "however often you look"


def users(sessions, each, bad=0, **fields):
    """User requests in sessions; in the last ones nothing is retrieved."""
    for number in range(sessions):
        found = [] if number >= sessions - bad else ["d1"]
        for _ in range(each):
            answer = {"claim": "that is right", "citations": found}
            request = {"source": "live", "session": f"s{number}", "retrieved_ids": found, "answer_json": answer}
            yield {**request, "build": "1.1", **fields}


@pytest.fixture
def judge(tmp_path):
    """`ragmon gate` on traces of the 60 gold items, with the default gates or those of a configuration."""

    def gate(run, *options, config=None):
        files = lines(tmp_path / "traces.jsonl", run), "--gold", lines(tmp_path / "gold.jsonl", gold())
        if config is not None:
            path = tmp_path / "ragmon.toml"
            path.write_text(config, encoding="utf-8")
            options = (*options, "--config", path)
        return ragmon("gate", *files, *options)

    return gate


def verdicts(done):
    return {entry["gate"]: entry["verdict"] for entry in done.json["gates"]}


def rows(done):
    """The line of each gate, by its name."""
    return {line.split()[0]: line for line in done.out.splitlines() if line.startswith("default/")}


# --- a run through a gold set -----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_build_is_judged_and_the_whole_is_not(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.1", "--format", "json")
    assert (done.code, set(verdicts(done).values())) == (0, {"pass"})
    assert judge(OLD_AND_NEW).code == 1


@pytest.mark.slow
def test_a_run_that_is_under_way_proves_nothing_however_often_it_is_asked(judge):
    """What it comes to first is right; of the whole set three of four are."""
    run = list(traces(unanswerable=0, wrong={f"a{n}" for n in range(30, 40)}, build="2"))
    items = list(traces(answerable=0, build="2"))
    config = "[gates]\nanswer_precision.at_least = 0.8\n"
    for seen in (10, 30, 40):
        done = judge(run[:seen], "--since-build", "2", config=config)
        assert done.code == 2
        assert f"since build 2: {60 - seen} of 60 gold items have no trace yet" in done.out
    done = judge([*run, *items], "--since-build", "2", config=config)
    assert done.code == 1
    assert "75.0 %" in rows(done)["default/answer_precision"]
    assert "since build 2: exact over 60 gold items" in rows(done)["default/answer_precision"]


def test_for_questions_like_these_it_takes_more_items_than_the_set_has(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.1", "--estimand", "questions_like_these")
    assert done.code == 2
    assert (
        "since build 1.1: proven within the limit by 40 gold items, however often you"
        in rows(done)["default/answer_precision"]
    )
    assert "since build 1.1: only 20 gold items (min_samples is 30); about 115 gold items needed" in done.out


def test_the_table_says_why_and_for_which_build(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.0")
    assert (done.code, done.err) == (1, "")
    assert "since build 1.0: exact over 60 gold items" in rows(done)["default/answer_precision"]
    said = "only records of build 1.0; intervals of gates hold at all looks together, those of series at one"
    assert f"note: {said}" in done.out.splitlines()


def test_markdown_has_the_same_verdict(judge):
    done = judge(OLD_AND_NEW, "--since-build", "1.0", "--format", "md")
    assert (done.code, done.out.splitlines()[0]) == (1, "# Gates: ❌ fail")


@pytest.mark.slow
@pytest.mark.parametrize(("choice", "code"), [("fail", 1), ("pass", 0)])
def test_on_insufficient_counts_it_as_told(judge, choice, code):
    half = traces(unanswerable=0, build="1.1")
    assert judge(half, "--since-build", "1.1", "--on-insufficient", choice).code == code


# --- user traffic -----------------------------------------------------------------------------------------------------

EMPTY = "[gates]\nempty_retrieval_rate.at_most = 0.3\n"


@pytest.mark.slow
def test_the_requests_of_a_session_are_one_observation(judge):
    """480 of 600 requests would prove that at most 30 % retrieve nothing; 48 of 60 sessions do not."""
    done = judge(users(60, 10, bad=12), "--since-build", "1.1", "--format", "json", config=EMPTY)
    (gate,) = done.json["gates"]
    assert (done.code, gate["verdict"], gate["n"], gate["n_eff"]) == (2, "insufficient", 600, 60)
    assert gate["upper"] > 0.3
    done = judge(users(600, 1, bad=120), "--since-build", "1.1", config=EMPTY)
    assert done.code == 0
    assert f"since build 1.1: proven within the limit by 600 observations, {ASKED}" in done.out


@pytest.mark.slow
def test_a_cluster_is_what_the_configuration_says(judge):
    done = judge(users(60, 10, bad=12), "--since-build", "1.1", config=f"[metrics]\ncluster = []\n{EMPTY}")
    assert done.code == 0


def test_requests_that_name_no_cluster_are_counted_one_by_one_and_a_note_says_so(judge):
    done = judge(users(1, 120, session=None), "--since-build", "1.1", config=EMPTY)
    note = "note: 120 requests of 1.1 have nothing that [metrics] cluster names: each counts as one observation"
    assert (done.code, note in done.out.splitlines()) == (0, True)


def test_json_holds_the_build_alone(judge):
    """Its notes go to stderr: the report has no place for them. Of which calls it is a part nobody knows."""
    run = [*users(60, 2), *users(60, 2, bad=60, build="1.0")]
    done = judge(run, "--since-build", "1.1", "--format", "json", config=EMPTY)
    assert done.err.splitlines() == [
        "note: only records of build 1.1; intervals of gates hold at all looks together, those of series at one",
        "note: a cluster of requests counts as one observation ([metrics] cluster)",
    ]
    (series,) = done.json["series"]
    (gate,) = done.json["gates"]
    assert series["metrics"]["empty_retrieval_rate"]["n"] == gate["n"] == 120
    assert "of" not in {*series, *gate}
    assert (gate["value"], gate["n_eff"], gate["needed"], gate["lower"]) == (0.0, 60, None, 0.0)
    assert 0.06 < gate["upper"] < 0.20  # for one look at 60 it would end at .06


@pytest.mark.slow
def test_questions_of_the_gold_set_that_users_asked_are_judged_as_they_come(judge):
    live = [{**trace, "source": "live"} for trace in traces(wrong=ALL_WRONG, build="1.1")]
    done = judge(live, "--since-build", "1.1", "--format", "json")
    sources = {found["gate"]: found["source"] for found in done.json["gates"]}
    assert (sources["answer_precision"], sources["coverage"]) == ("match", "live")
    assert verdicts(done)["answer_precision"] == "fail"


@pytest.mark.slow
def test_whoever_deploys_asks_until_there_is_a_verdict(judge):
    """Flawless answers, judged at .80 as they come in."""
    config = "[gates]\nanswer_precision.at_least = 0.8\n"
    run = list(traces(unanswerable=0, source="live", build="2"))
    codes = [judge(run[:seen], "--since-build", "2", config=config).code for seen in (10, 29, 30)]
    assert codes == [2, 2, 0]


@pytest.mark.slow
def test_gates_on_latency_are_left_out(judge):
    """A build alone has no baseline, and the others may pass."""
    run = list(users(300, 1, index_hash="i1", latency_ms={"total": 900.0}))
    done = judge(run, "--since-build", "1.1", config='[gates]\npreset = "wfgy-live"\n')
    assert set(rows(done)) == {"default/coverage", "default/citation_scope", "default/index_hash"}
    assert (done.code, "note: not judged: latency_p95 (no baseline)" in done.out.splitlines()) == (0, True)
    done = judge(run, "--since-build", "1.1", config="[gates]\nslow = { kind = 'quantile_ratio', at_most = 1.3 }\n")
    assert done.error == ("no gate can be judged on one build: slow", "without --since-build, with --baseline FILE")


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_build_nobody_has_seen_is_refused_with_the_nearest(judge):
    done = judge(traces(build="release-7"), "--since-build", "release-8")
    assert done.error == ("unknown build: 'release-8'", "did you mean release-7?")


def test_traces_without_a_build_are_refused(judge):
    assert judge(traces(), "--since-build", "1").error == ("unknown build: '1'", "no record carries a build")


def test_a_drop_that_is_no_number_is_refused(judge):
    done = judge(OLD_AND_NEW, "--baseline", "earlier.json", "--max-drop", "nan")
    assert done.error[0] == "Invalid value for '--max-drop': nan is not a number. 0.02 is 2 points"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--baseline", "traces.jsonl"],
            "--baseline does not go with --since-build: it holds for one look; `ragmon compare` holds for all looks",
        ),
        (
            ["--duplicates", "last"],
            "--duplicates does not go with --since-build: it chooses among the answers of all builds",
        ),
        (
            ["--jobs", "2"],
            "--jobs does not go with --since-build: one process keeps the requests of a session together",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(judge, options, message):
    done = judge(OLD_AND_NEW, "--since-build", "1.1", *options)
    assert done.error == (message, "ragmon gate --help")
