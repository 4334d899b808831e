"""`ragmon gate` end to end: the exit code is the verdict, and the output says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import gold, lines, ragmon, traces

WRONG = ("a3", "a7", "a11")
"""Of 40 answers: 92.5 % are right, which every gate passes."""


@pytest.fixture
def judge(tmp_path):
    """`ragmon gate` on traces of the 60 gold items."""

    def gate(run, *options, **more):
        files = lines(tmp_path / "traces.jsonl", run), "--gold", lines(tmp_path / "gold.jsonl", gold())
        return ragmon("gate", *files, *options, **more)

    return gate


def verdicts(done):
    """The verdict of each gate that did not pass, from the table."""
    rows = [line.split() for line in done.out.splitlines()[1:-1]]
    return {row[0].partition("/")[2]: word for row in rows for word in row if word in ("fail", "insufficient")}


class TestExitCode:
    def test_0_every_gate_passes(self, judge):
        done = judge(traces())
        assert (done.code, done.err, verdicts(done)) == (0, "", {})
        assert done.out.endswith("\nverdict: pass\n")

    def test_1_a_gate_fails(self, judge):
        done = judge(traces(wrong={f"a{n}" for n in range(9)}))
        assert (done.code, done.err, verdicts(done)) == (1, "", {"answer_precision": "fail"})
        assert done.out.endswith("\nverdict: fail\n")

    def test_2_too_much_of_the_gold_set_is_missing(self, judge):
        done = judge(traces(unanswerable=18))
        assert (done.code, set(verdicts(done).values())) == (2, {"insufficient"})
        assert "2 of 60 gold items have no trace: 3.3 %, and at most 2 % may be missing" in done.out

    def test_2_there_are_no_traces(self, judge):
        done = judge([])
        assert (done.code, set(verdicts(done).values())) == (2, {"insufficient"})

    def test_2_there_is_no_gold(self, tmp_path):
        done = ragmon("gate", lines(tmp_path / "t.jsonl", traces()))
        assert done.code == 2
        waiting = "answer_precision, citation_hit_rate, under_refusal_rate, over_refusal_rate"
        assert done.err.splitlines() == [
            f"note: no gold set, and 4 gates need one: {waiting}",
            "hint: --gold FILE, or [gold.NAME] in ragmon.toml",
        ]

    def test_a_failed_gate_outweighs_missing_items(self, judge):
        """Errors are judged on every request, whatever the gold set lacks."""
        done = judge([*traces(), *({"qid": f"x{n}", "error": "timeout"} for n in range(20))])
        assert (done.code, verdicts(done)["error_rate"]) == (1, "fail")

    @pytest.mark.slow
    @pytest.mark.parametrize(("choice", "code"), [("fail", 1), ("pass", 0)])
    def test_on_insufficient_counts_it_as_told(self, judge, choice, code):
        done = judge([], "--on-insufficient", choice)
        assert done.code == code
        assert done.out.endswith(f"\nverdict: {choice}\n")


class TestFormat:
    @pytest.mark.slow
    @pytest.mark.parametrize(("form", "start"), [("text", "gate  "), ("md", "# Gates: ❌ fail\n"), ("json", "{\n")])
    def test_every_format_has_the_same_exit_code(self, judge, form, start):
        done = judge(traces(wrong={f"u{n}" for n in range(20)}), "--format", form)
        assert (done.code, done.err) == (1, "")
        assert done.out.startswith(start)

    def test_output_goes_to_a_file_and_the_verdict_to_the_exit_code(self, judge, tmp_path):
        path = tmp_path / "verdict.txt"
        done = judge(traces(wrong={f"u{n}" for n in range(20)}), "--output", path)
        assert (done.code, done.out, done.err) == (1, "", "")
        assert path.read_text(encoding="utf-8").endswith("\nverdict: fail\n")

    def test_json_is_the_report(self, judge):
        report = judge(traces(), "--format", "json").json
        assert report["verdict"] == "pass"
        precision = next(gate for gate in report["gates"] if gate["gate"] == "answer_precision")
        assert (precision["value"], precision["n"], precision["estimand"]) == (1.0, 40, "gold_set")

    def test_shares_are_percents_and_other_values_plain_numbers(self, tmp_path):
        config = tmp_path / "ragmon.toml"
        config.write_text('[gates]\ncompliance.at_least = 0.9\none_index = { kind = "distinct", at_most = 1 }\n')
        run = [*traces(index_hash="aa", build="1"), *traces(index_hash="bb", build="1")]
        done = ragmon("gate", lines(tmp_path / "t.jsonl", run), "--config", config)
        rows = {line.split()[0]: line.split()[1:3] for line in done.out.splitlines()}
        assert (rows["default/one_index"][0], rows["default/compliance"]) == ("2", ["100.0", "%"])
        assert done.code == 1


class TestEstimand:
    @pytest.mark.slow
    def test_a_whole_gold_set_is_exact_and_says_less_about_other_questions(self, judge):
        """20 refusals of 20 prove the set, and not that 5 % of such questions are answered at most."""
        assert judge(traces(), "--estimand", "gold_set").code == 0
        done = judge(traces(), "--estimand", "questions_like_these")
        assert (done.code, verdicts(done)["under_refusal_rate"]) == (2, "insufficient")


class TestConfiguration:
    TWO = "[gates]\npreset = 'wfgy-eval'\n[pipelines.a]\n[pipelines.b]\n[gold.mine]\npath = 'gold.jsonl'\n"

    @pytest.fixture
    def two(self, tmp_path):
        """Two pipelines over one gold set; `b` has every answer wrong."""
        (tmp_path / "ragmon.toml").write_text(self.TWO)
        lines(tmp_path / "gold.jsonl", gold())
        wrong = {f"a{n}" for n in range(40)}
        return lines(tmp_path / "t.jsonl", [*traces(pipeline="a"), *traces(pipeline="b", wrong=wrong)])

    @pytest.mark.slow
    @pytest.mark.parametrize(("option", "code", "judged"), [(["a"], 0, {"a"}), (["b"], 1, {"b"}), ([], 1, {"a", "b"})])
    def test_pipeline_judges_one_of_several(self, two, tmp_path, option, code, judged):
        done = ragmon("gate", two, *(["--pipeline", *option] if option else []), cwd=tmp_path)
        assert done.code == code
        lines = [line for line in done.out.splitlines()[1:-1] if "/" in line.split("  ")[0]]
        assert {line.partition("/")[0] for line in lines} == judged

    def test_an_unknown_pipeline_is_refused(self, two, tmp_path):
        assert ragmon("gate", two, "--pipeline", "c", cwd=tmp_path).error == ("unknown pipeline: 'c'", "one of: a, b")

    @pytest.mark.slow
    def test_a_gate_on_a_gold_set_that_was_replaced_is_refused(self, tmp_path):
        """It would wait for ever for data under the old name."""
        config = tmp_path / "ragmon.toml"
        config.write_text("[gold.old]\npath = 'old.jsonl'\n[gates.mrr]\nat_least = 0.5\ngold = 'old'\n")
        files = lines(tmp_path / "t.jsonl", traces()), "--gold", lines(tmp_path / "new.jsonl", gold())
        message, hint = ragmon("gate", *files, "--config", config).error
        assert (message, hint) == ("unknown gold set of gate mrr: 'old'", "one of: new")


@pytest.fixture(scope="module")
def earlier(tmp_path_factory):
    """A flawless run: its report, and its traces."""
    folder = tmp_path_factory.mktemp("earlier")
    run, report = lines(folder / "traces.jsonl", traces()), str(folder / "report.json")
    done = ragmon("gate", run, "--gold", lines(folder / "gold.jsonl", gold()), "--format", "json", "--output", report)
    assert done.code == 0
    return {"report": report, "traces": run}


class TestBaseline:
    @pytest.mark.slow
    @pytest.mark.parametrize("kind", ["report", "traces"])
    def test_a_drop_beyond_what_is_allowed_fails_a_gate_that_holds(self, judge, earlier, kind):
        done = judge(traces(wrong=WRONG), "--baseline", earlier[kind])
        assert (done.code, verdicts(done)["answer_precision"]) == (1, "fail")
        assert "7.5 points worse than the baseline, 2.0 are allowed" in done.out
        assert "default/answer_precision: 100.0 % -> 92.5 % against the baseline" in done.out

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("kind", "allowed", "code"), [("report", 0.075, 0), ("traces", 0.075, 0), ("traces", 0.074, 1)]
    )
    def test_max_drop_allows_exactly_as_much(self, judge, earlier, kind, allowed, code):
        assert judge(traces(wrong=WRONG), "--baseline", earlier[kind], "--max-drop", allowed).code == code

    @pytest.mark.slow
    def test_earlier_traces_name_the_items_that_flipped(self, judge, earlier):
        done = judge(traces(wrong=WRONG), "--baseline", earlier["traces"])
        assert "3 of 40 items flipped\n" in done.out
        flips = [line for line in done.out.splitlines() if line.startswith("  ")]
        assert [line.strip() for line in flips] == [f"{qid}: 100.0 % -> 0.0 %" for qid in sorted(WRONG)]

    @pytest.mark.slow
    def test_json_holds_the_flips(self, judge, earlier):
        report = judge(traces(wrong=WRONG), "--baseline", earlier["traces"], "--format", "json").json
        moved = {entry["gate"]: entry for entry in report["baseline"]}["answer_precision"]
        assert (moved["before"], moved["after"], moved["drop"], moved["items"]) == (1.0, 0.925, 0.075, 40)
        assert moved["flips"] == [{"qid": qid, "before": 1.0, "after": 0.0} for qid in sorted(WRONG)]

    @pytest.mark.slow
    def test_a_better_run_passes_and_the_flips_are_listed(self, judge, tmp_path):
        before = lines(tmp_path / "before.jsonl", traces(wrong=WRONG))
        done = judge(traces(), "--baseline", before)
        assert done.code == 0
        assert "92.5 % -> 100.0 % against the baseline, 3 of 40 items flipped" in done.out

    @pytest.mark.slow
    def test_the_baseline_is_read_with_the_same_choice_of_duplicates(self, judge, tmp_path):
        """Both runs answer everything twice, wrong at first: by the last answers nothing has changed."""
        twice = [*traces(wrong={f"a{n}" for n in range(40)}), *traces()]
        before = lines(tmp_path / "before.jsonl", twice)
        report = judge(twice, "--baseline", before, "--duplicates", "last", "--format", "json").json
        assert {entry["before"] for entry in report["baseline"] if entry["gate"] == "answer_precision"} == {1.0}
        assert report["verdict"] == "pass"

    @pytest.mark.slow
    @pytest.mark.parametrize("form", ["text", "json"])
    def test_another_gold_set_than_the_baselines_is_told(self, judge, earlier, tmp_path, form):
        report = json.loads(Path(earlier["report"]).read_text(encoding="utf-8"))
        report["gold"][0]["version"] = "00000000"
        other = tmp_path / "other.json"
        other.write_text(json.dumps(report))
        done = judge(traces(), "--baseline", other, "--format", form)
        assert done.code == 0
        assert "note: gold gold is not the baseline's: " in (done.out if form == "text" else done.err)

    @pytest.mark.slow
    def test_a_baseline_without_anything_to_compare_is_refused(self, judge, tmp_path):
        empty = lines(tmp_path / "empty.jsonl", [])
        assert judge(traces(), "--baseline", empty).error[0] == f"{empty}: the baseline has nothing to compare with"

    @pytest.mark.slow
    def test_max_drop_without_a_baseline_is_refused(self, judge):
        done = judge(traces(), "--max-drop", "0.1")
        assert done.error == ("--max-drop does nothing without --baseline", "ragmon gate --help")
