"""`ragmon replay` end to end: the report it writes, the files it reads, the configuration it follows."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter

import pytest

from ragmon.cli.options import usual_jobs
from tests.support.command_line import SMALL, gold, lines, ragmon, traces

TRACES, GOLD = str(SMALL / "traces.jsonl"), str(SMALL / "gold.jsonl")
NOON = 1_763_683_200


@pytest.fixture(scope="module")
def written():
    """The report over the 200 questions, as it is written."""
    return ragmon("replay", TRACES, "--gold", GOLD)


@pytest.fixture
def world(tmp_path):
    """A gold set of 60 items and a run over it."""
    return lines(tmp_path / "traces.jsonl", traces()), lines(tmp_path / "gold.jsonl", gold())


class TestReport:
    @pytest.mark.slow
    def test_json_has_exactly_the_documented_keys(self, written):
        report = written.json
        keys = ["version", "gold", "records", "series", "latency_ms", "captured", "gates", "verdict", "digest"]
        assert list(report) == keys
        assert [list(entry) for entry in report["gold"]] == [["name", "version", "items", "traced", "unscorable"]]
        assert list(report["records"]) == ["read", "scored", "unmatched", "duplicate", "rejected"]
        for series in report["series"]:
            assert list(series) == ["pipeline", "source", "gold", "gold_version", "window", "metrics"]
            assert series["window"] == "all"
            for metric in series["metrics"].values():
                judged = ["estimands"] if "estimands" in metric else []  # gated metrics of a gold set
                assert bool(judged) <= bool(series["gold"])
                assert list(metric) == ["value", "lower", "upper", "n", "sum", "unassessed", *judged]
                assert (metric["value"] is None) == (metric["n"] == 0)
        judged = (
            "pipeline gate metric source gold estimand threshold direction value lower upper n n_eff needed "
            "verdict reason"
        )
        assert report["gates"]
        assert {tuple(gate) for gate in report["gates"]} == {tuple(judged.split())}

    def test_exit_code_is_0_whatever_the_verdict_and_stderr_stays_empty(self, written):
        assert (written.json["verdict"], written.code, written.err) == ("fail", 0, "")

    @pytest.mark.slow
    def test_latency_is_in_quantiles_per_stage(self, tmp_path):
        stages = {"total": 100.0, "retrieve": 40.0, "generate": 60.0}
        report = ragmon("replay", lines(tmp_path / "t.jsonl", traces(3, 0, latency_ms=stages))).json
        assert set(report["latency_ms"]) == set(stages)
        for stage, quantiles in report["latency_ms"].items():
            assert list(quantiles) == ["p50", "p95", "p99"]
            assert all(ms == pytest.approx(stages[stage], rel=0.011) for ms in quantiles.values())

    @pytest.mark.slow
    def test_several_processes_write_the_same_bytes(self, written):
        assert ragmon("replay", TRACES, "--gold", GOLD, "--jobs", 2) == written

    @pytest.mark.slow
    def test_output_writes_to_a_file_what_else_is_printed(self, tmp_path, written):
        path = tmp_path / "report.json"
        assert ragmon("replay", TRACES, "--gold", GOLD, "--output", path) == (type(written)(0, "", ""))
        assert path.read_text(encoding="utf-8") == written.out

    @pytest.mark.slow
    def test_rejected_lines_are_named_on_stderr_and_counted_in_the_report(self, tmp_path):
        path = tmp_path / "t.jsonl"
        path.write_text("".join(f"broken {n}\n" for n in range(9)) + json.dumps(next(traces())) + "\n")
        done = ragmon("replay", path)
        assert done.json["records"] | {"unmatched": 0} == {
            "read": 10,
            "scored": 1,
            "unmatched": 0,
            "duplicate": 0,
            "rejected": {"malformed_json": 9},
        }
        named = done.err.splitlines()
        assert all(f"{path}:{n}: malformed_json" in line for n, line in enumerate(named[:5], start=1))
        assert named[5:] == ["rejected: 4 more, counted by reason in the report"]


class TestMarkdown:
    @pytest.mark.slow
    @pytest.mark.parametrize(("asked", "rows"), [("0", 0), ("2", 2), ("all", 60), (None, 60)])
    def test_questions_limits_the_per_question_table(self, world, asked, rows):
        option = [] if asked is None else ["--questions", asked]
        done = ragmon("replay", world[0], "--gold", world[1], "--format", "md", *option)
        assert done.out.startswith("# RAG quality report\n\n**✅ pass**")
        assert sum(line.endswith(("**OK** |", "**REFUSAL_OK** |")) for line in done.out.split("\n")) == rows

    @pytest.mark.slow
    def test_the_digest_is_the_start_of_the_one_in_json(self, written):
        done = ragmon("replay", TRACES, "--gold", GOLD, "--format", "md")
        assert f"digest `{written.json['digest'][:16]}`" in done.out


MINUTES = (0, 1, 4, 9, 12, 26)


@pytest.fixture(scope="module")
def half_an_hour(tmp_path_factory):
    """The report with windows on six requests, at these minutes; those at odd minutes cite what was not retrieved."""
    records = [
        {
            "ts": NOON + 60 * minute,
            "retrieved_ids": ["d1"],
            "answer_json": {"claim": "an answer", "citations": ["d404" if minute % 2 else "d1"]},
        }
        for minute in MINUTES
    ]
    return ragmon("replay", lines(tmp_path_factory.mktemp("windows") / "t.jsonl", records), "--windows").json


class TestWindows:
    @pytest.mark.slow
    def test_one_entry_per_span_and_step_end_beside_the_whole_run(self, half_an_hour):
        ends = sorted({(NOON + 60 * minute) // 300 * 300 + 300 for minute in MINUTES})
        places = [(series["window"], series.get("end")) for series in half_an_hour["series"]]
        assert places[0] == ("all", None)
        assert places[1:] == [(window, end) for end in ends for window in ("5m", "1h", "24h")]

    def test_a_window_counts_the_requests_of_its_span_before_its_end(self, half_an_hour):
        for series in half_an_hour["series"][1:]:
            span = {"5m": 300, "1h": 3600, "24h": 86_400}[series["window"]]
            inside = [m for m in MINUTES if series["end"] - span <= NOON + 60 * m < series["end"]]
            scope = series["metrics"]["citation_scope"]
            assert scope["n"] == len(inside)
            assert scope["sum"] == sum(minute % 2 == 0 for minute in inside)

    def test_the_verdict_is_that_of_the_whole_run(self, half_an_hour):
        whole = half_an_hour["series"][0]["metrics"]["citation_scope"]
        gate = next(gate for gate in half_an_hour["gates"] if gate["gate"] == "citation_scope")
        assert (gate["value"], gate["n"]) == (whole["value"], 6)


class TestInput:
    @pytest.mark.slow
    def test_duplicates_choose_the_record_that_counts(self, tmp_path):
        """One question answered wrong, then right: both count, or only the last, or only the first."""
        both = [*traces(1, 0, wrong={"a0"}), *traces(1, 0)]
        files = lines(tmp_path / "t.jsonl", both), "--gold", lines(tmp_path / "g.jsonl", gold(1, 0))
        seen = {}
        for choice in ("all", "last", "first"):
            report = ragmon("replay", *files, "--duplicates", choice).json
            assert report["records"]["duplicate"] == 1
            over_gold = next(series for series in report["series"] if series["gold"])
            precision = over_gold["metrics"]["answer_precision"]
            seen[choice] = (precision["n"], precision["value"])
        assert seen == {"all": (2, 0.5), "last": (1, 1.0), "first": (1, 0.0)}

    @pytest.mark.slow
    def test_a_named_pipe_is_read_like_a_file(self, tmp_path, written):
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        content = (SMALL / "traces.jsonl").read_bytes()
        writer = threading.Thread(target=pipe.write_bytes, args=(content,))
        writer.start()
        done = ragmon("replay", pipe, "--gold", GOLD, "--jobs", 2)
        writer.join()
        assert done == written

    @pytest.mark.slow
    def test_gold_may_come_from_standard_input(self, world, tmp_path):
        report = ragmon("replay", world[0], "--gold", "-", say=(tmp_path / "gold.jsonl").read_text()).json
        assert [(entry["name"], entry["traced"]) for entry in report["gold"]] == [("stdin", 60)]

    @pytest.mark.slow
    def test_standard_input_cannot_be_two_things(self):
        message, hint = ragmon("replay", "-", "--gold", "-", say="").error
        assert (message, hint) == ("standard input is named more than once: '-'", "it can be read once: name files")

    @pytest.mark.slow
    def test_a_file_that_is_named_twice_counts_twice_and_is_told(self, world, tmp_path):
        again = tmp_path / "again.jsonl"
        again.symlink_to(world[0])
        done = ragmon("replay", world[0], again, "--gold", world[1])
        assert done.json["records"] | {"rejected": 0} == {
            "read": 120,
            "scored": 120,
            "unmatched": 0,
            "duplicate": 60,
            "rejected": 0,
        }
        assert [line.split(" is read ")[0] for line in done.err.splitlines()] == [f"note: {again}", f"note: {world[0]}"]


class TestConfiguration:
    @pytest.mark.slow
    def test_gold_of_the_configuration_is_found_beside_it(self, world, tmp_path):
        (tmp_path / "ragmon.toml").write_text('[gold.mine]\npath = "gold.jsonl"\n')
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        report = ragmon("replay", world[0], "--config", "../ragmon.toml", cwd=elsewhere).json
        assert [(entry["name"], entry["traced"]) for entry in report["gold"]] == [("mine", 60)]

    @pytest.mark.slow
    def test_gold_the_configuration_knows_keeps_its_name(self, world, tmp_path):
        config = tmp_path / "ragmon.toml"
        config.write_text('[gold.mine]\npath = "gold.jsonl"\n')
        report = ragmon("replay", world[0], "--gold", world[1], "--config", config).json
        assert [entry["name"] for entry in report["gold"]] == ["mine"]

    @pytest.mark.slow
    def test_every_pipeline_of_the_configuration_is_judged(self, tmp_path):
        config = tmp_path / "ragmon.toml"
        config.write_text(
            "[gates]\npreset = 'wfgy-eval'\n[pipelines.a]\n[pipelines.b.gates.coverage]\nat_least = 0.9\n"
        )
        records = [*traces(pipeline="a"), *traces(pipeline="b")]
        report = ragmon("replay", lines(tmp_path / "t.jsonl", records), "--config", config).json
        gates = Counter(gate["pipeline"] for gate in report["gates"])
        assert gates == {"a": 4, "b": 5}
        assert [gate["n"] for gate in report["gates"] if gate["gate"] == "coverage"] == [40]
        assert {series["pipeline"] for series in report["series"]} == {"a", "b"}

    PLUGIN = '''
import ragmon

@ragmon.register
class Brevity(ragmon.Metric):
    """Share of requests that shipped an answer."""
    name = "brevity"
    better = "higher"
    needs_gold = False

    def score(self, facts):
        return 1.0
'''

    @pytest.mark.slow
    @pytest.mark.parametrize("jobs", [1, 2])
    def test_a_plugin_may_lie_in_the_folder_ragmon_is_called_in(self, tmp_path, jobs):
        """As with `python -m`; spawned processes find it too."""
        (tmp_path / "my_metrics.py").write_text(self.PLUGIN)
        (tmp_path / "ragmon.toml").write_text('plugins = ["my_metrics"]\n')
        lines(tmp_path / "one.jsonl", traces(5, 0))
        lines(tmp_path / "two.jsonl", traces(6, 0))
        report = ragmon("replay", "one.jsonl", "two.jsonl", "--jobs", jobs, cwd=tmp_path).json
        assert report["series"][0]["metrics"]["brevity"]["n"] == 11

    def test_a_file_there_takes_the_place_of_no_installed_module(self, tmp_path):
        (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong msgspec')")
        assert ragmon("replay", lines(tmp_path / "t.jsonl", traces()), cwd=tmp_path).json["records"]["scored"] == 60


@pytest.mark.parametrize(("mebibytes", "jobs"), [(0, 1), (64, 1), (65, 2), (129, 4), (100_000, 1000)])
def test_large_files_are_shared_by_the_free_cores(mebibytes, jobs):
    """One process where the files are small, and no more than one for 32 MiB and for a core."""
    assert usual_jobs(mebibytes << 20) == min(jobs, len(os.sched_getaffinity(0)))
