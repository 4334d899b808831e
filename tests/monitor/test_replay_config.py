"""`ragmon.replay` reads ragmon.toml as the command line does, and passes exactly where `ragmon gate` passes."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pandas as pd
import pytest

import ragmon
from ragmon.core.errors import ConfigError
from ragmon.core.policy import Gate, Policy
from tests.support.command_line import gold, lines, traces
from tests.support.command_line import ragmon as command

NOON = 1_763_683_200
BEYOND = "That goes beyond my book."
REFUSAL = '[refusal]\ntokens = ["That goes beyond my book."]\n'
GATES = "[gates.under_refusal_rate]\nat_most = 0.10\n"
GOLD = '[gold.huts]\npath = "gold.jsonl"\n'
CONFIGURATIONS = {
    "tokens": REFUSAL,
    "patterns": '[refusal]\npatterns = ["beyond my book"]\ntokens = ["-"]\n',
    "words do not count": "[refusal]\nmatcher_counts = false\n",
    "gates": GATES + '[gates.answered_within]\nat_least = 0.9\n[metrics]\nanswered_within = "50ms"\nk = [2]\n',
    "a preset": '[gates]\npreset = "wfgy-eval"\nverdict = "point"\n',
    "gold": GOLD + GATES,
    "gold of a pipeline, with tags": (
        'pipeline.name = "support"\n[gold.huts]\npath = "gold.jsonl"\npipeline = "support"\ntags = { lang = "de" }\n'
        '[slices]\nlang = ["de"]\n[gates.answer_precision]\nat_least = 0.8\nslice = { lang = "de" }\ngold = "huts"\n'
    ),
    "windows": 'windows = ["10m", "24h"]\n[gates.error_rate]\nat_most = 0.1\nwindow = "10m"\n',
    "pipelines": f"[pipelines.sales.gates.coverage]\nat_least = 0.9\n[pipelines.default]\n{REFUSAL}",
    "clusters": '[metrics]\ncluster = ["session"]\ncitations_required = true\n',
    "nothing": "",
}


def log():
    """Requests with refusals in own words, citations, tags, sessions, times, two pipelines, errors and a label."""
    for n, trace in enumerate(traces(wrong=("a3", "u1"), latency_ms={"total": 40.0})):
        answer = trace["answer_json"]
        answer["claim"] = BEYOND if answer["claim"] == "not in context" else answer["claim"]
        trace |= {"trace_id": f"{n:032x}", "ts": NOON + n * 30, "tags": {"lang": "de" if n % 2 else "en"}}
        yield trace | {"session": f"s{n % 20}", "pipeline": "sales" if n % 7 == 6 else None}
    yield {"q": "Who?", "error": "Timeout", "ts": NOON}
    yield {"kind": "label", "trace_id": f"{2:032x}", "correct": False, "rater": "ada", "ts": NOON + 90}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a log and gold, and nothing of the environment."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("RAGMON_", "OTEL_"))]:
        monkeypatch.delenv(name)
    lines(tmp_path / "log.jsonl", ({k: v for k, v in trace.items() if v is not None} for trace in log()))
    lines(tmp_path / "gold.jsonl", gold())
    return tmp_path


def judged(*arguments):
    """Verdict and gates of `ragmon gate`."""
    report = command("gate", *arguments, "--format", "json", cwd=Path.cwd()).json
    return report["verdict"], report["gates"]


QUICK = ("tokens", "gold of a pipeline, with tags", "windows")


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS]
)
def test_a_report_in_python_is_that_of_the_command_line(folder, name):
    (folder / "ragmon.toml").write_text(CONFIGURATIONS[name], encoding="utf-8")
    given = () if "[gold." in CONFIGURATIONS[name] else ("--gold", "gold.jsonl")
    report = ragmon.replay("log.jsonl", *given[1:])
    assert (report.verdict, report.data()["gates"]) == judged("log.jsonl", *given)
    whole = command("replay", "log.jsonl", *given, "--format", "json", cwd=folder).json
    assert json.loads(report.json()) == whole


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tokens", "gates", "gold"])
def test_a_table_a_frame_and_dictionaries_are_judged_as_the_file(folder, name):
    (folder / "ragmon.toml").write_text(CONFIGURATIONS[name], encoding="utf-8")
    rows = [
        {
            "qid": trace["qid"],
            "answer": trace["answer_json"]["claim"],
            "retrieved_ids": " ".join(trace["retrieved_ids"]),
        }
        for trace in log()
        if "qid" in trace
    ]
    with (folder / "log.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    whole = [row | {"retrieved_ids": row["retrieved_ids"].split()} for row in rows]
    expected = judged("log.csv", "--gold", "gold.jsonl")
    for records in ("log.csv", folder / "log.csv", ["log.csv"], pd.DataFrame(rows), whole):
        report = ragmon.replay(records, gold="gold.jsonl")
        assert (report.verdict, report.data()["gates"]) == expected


def test_labels_among_dictionaries_are_joined_to_their_answers_as_those_of_a_file(folder):
    of_file = ragmon.replay("log.jsonl", gold="gold.jsonl")
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert ragmon.replay(entries, gold="gold.jsonl").data() == of_file.data()
    assert of_file.labelled is not None
    assert of_file.labelled.answers == 1


class TestWhichFile:
    """The gate says which configuration was read: its threshold is the file's number."""

    def threshold(self, *records, **how):
        report = ragmon.replay(*(records or (["log.jsonl"],)), **how)
        first, *_ = repr(report).splitlines()
        (found,) = {o.gate.threshold for o in report.outcomes if o.gate.metric == "error_rate"}
        return found, first.rpartition("gates of ")[2].removesuffix(">")

    @pytest.fixture
    def files(self, folder):
        for name, share in (("ragmon.toml", 0.5), ("other.toml", 0.25)):
            (folder / name).write_text(f"[gates.error_rate]\nat_most = {share}\n", encoding="utf-8")

    def test_the_folders(self, files):
        assert self.threshold() == (0.5, "ragmon.toml")

    def test_that_of_the_environment(self, files, monkeypatch):
        monkeypatch.setenv("RAGMON_CONFIG", "other.toml")
        assert self.threshold() == (0.25, "other.toml")

    @pytest.mark.parametrize("kind", [str, os.path.abspath])
    def test_the_one_that_is_named(self, files, monkeypatch, kind):
        monkeypatch.setenv("RAGMON_CONFIG", "ragmon.toml")
        assert self.threshold(config=kind("other.toml")) == (0.25, kind("other.toml"))

    def test_none(self, files, folder):
        assert self.threshold(config=os.devnull) == (0.05, os.devnull)
        (folder / "ragmon.toml").unlink()
        assert self.threshold() == (0.05, "the preset default")

    def test_a_policy_wins_and_the_file_says_what_a_refusal_is(self, folder):
        (folder / "ragmon.toml").write_text(CONFIGURATIONS["tokens"] + GATES, encoding="utf-8")
        gate = Gate("mine", "under_refusal_rate", 0.2, "at_most", pipeline="default")
        report = ragmon.replay("log.jsonl", "gold.jsonl", Policy((gate,)))
        (outcome,) = report.outcomes
        assert outcome.gate is gate
        assert outcome.value < 0.1
        assert "gates of the policy given" in repr(report)

    def test_a_broken_one_is_an_error(self, folder):
        (folder / "ragmon.toml").write_text("[gates.error_rate]\nat_most = 5.0\n", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"ragmon\.toml:2"):
            ragmon.replay("log.jsonl")

    def test_its_gold_is_left_out_by_an_empty_list(self, folder):
        (folder / "ragmon.toml").write_text(GOLD, encoding="utf-8")
        assert len(ragmon.replay("log.jsonl").golds()) == 1
        assert ragmon.replay("log.jsonl", gold=[]).golds() == []
