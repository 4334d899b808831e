"""`ragmon config check` and `show`: what a person sees of the configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from ragmon.cli.config import SERIES, rows
from ragmon.cli.main import main
from ragmon.config.load import defaults, load
from ragmon.config.units import MASK
from ragmon.export.families import expected_series

CONFIG = """\
[pipelines.support]
sampling = { rate = 0.2 }
[pipelines.support.gates.coverage]
at_least = 0.6
[gates]
preset = "wfgy-eval"
[gold.g]
path = "g.jsonl"
[probe.p]
target = "https://me:hunter2@rag.example/ask?key=hunter2"
headers = { Authorization = "hunter2", X-Api-Key = "hunter2", Accept = "text/plain" }
[judges.faithfulness]
url = "https://hunter2@judge.example"
model = "m"
api_key_file = "hunter2"
[slices]
token = ["a"]
[serve]
token_file = "hunter2"
tls = { cert = "c.pem", key = "hunter2" }
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs `ragmon config ...` in a folder that holds the given ragmon.toml."""
    monkeypatch.chdir(tmp_path)

    def _run(*args: str, text: str | None = None, **environ: str):
        if text is not None:
            Path("ragmon.toml").write_text(text, encoding="utf-8")
        return CliRunner().invoke(main, ["config", *args], env={"RAGMON_CONFIG": None, **environ})

    return _run


@pytest.fixture
def shown(tmp_path):
    """The rows of a text by key."""

    def _shown(text: str, **environ: str):
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return {key: (value, origin) for key, value, origin in rows(load(path, environ=environ))}

    return _shown


class TestRows:
    def test_every_value_has_its_origin(self, shown):
        found = shown('[sampling]\nrate = 0.1\nslow_above = "90s"\n', RAGMON_CONTENT="full")
        assert found["sampling.rate"] == (0.1, "ragmon.toml:2")
        assert found["sampling.slow_above"] == ("90s", "ragmon.toml:3")
        assert found["capture.content"] == ("full", "environment RAGMON_CONTENT")
        assert found["serve.max_size"] == ("5GiB", "default")
        assert found["refusal.patterns"] == ([], "default")
        assert found["export.jsonl"] == (None, "default")

    def test_a_pipeline_shows_what_it_says_itself(self, shown):
        found = shown(CONFIG)
        assert found["pipelines.support.sampling.rate"] == (0.2, "ragmon.toml:2")
        assert "pipelines.support.sampling.detail" not in found
        assert found["pipeline.name"][0] == "support"

    def test_a_gate_shows_the_source_it_gets_and_that_nobody_said_so(self, shown):
        found = shown(CONFIG)
        at = "pipelines.support.gates"
        assert found[f"{at}.answer_precision.source"] == (None, "default"), "the first that has data"
        assert found[f"{at}.coverage.source"] == ("live", "default")
        assert shown(f'{CONFIG}[gates.mrr]\nat_least = 0.5\nsource = "match"\n')[f"{at}.mrr.source"] == (
            "match",
            "ragmon.toml:23",
        )

    def test_a_presets_gate_comes_from_the_line_that_names_the_preset(self, shown):
        found = shown(CONFIG)
        assert found["pipelines.support.gates.answer_precision.at_least"] == (0.8, "ragmon.toml:6")
        assert found["pipelines.support.gates.coverage.at_least"] == (0.6, "ragmon.toml:4")
        assert shown("")["gates.coverage.at_least"] == (0.7, "default")

    def test_no_secret_is_shown(self, shown):
        found = shown(CONFIG)
        assert "hunter2" not in repr(found)
        assert found["serve.token_file"] == (MASK, "ragmon.toml:19")
        assert found["probe.p.headers"][0] == {"Authorization": MASK, "X-Api-Key": MASK, "Accept": "text/plain"}
        assert found["probe.p.target"][0] == f"https://{MASK}@rag.example/ask?{MASK}"
        assert found["serve.tls"][0]["key"] == MASK

    def test_what_only_sounds_like_a_secret_is_shown(self, shown):
        found = shown(CONFIG)
        assert found["refusal.tokens"][0] == ["not in context"]
        assert found["slices.token"][0] == ["a"]
        assert shown("")["serve.token_file"][0] is None

    def test_the_rows_are_plain_data(self, shown):
        found = shown(CONFIG)
        assert json.loads(json.dumps(found)) == {key: list(row) for key, row in found.items()}


class TestExpectedSeries:
    def test_the_last_row_is_the_estimate(self):
        settings = defaults()
        assert rows(settings)[-1] == (SERIES, expected_series(settings), "estimate")

    def test_a_gate_adds_ten_and_its_alarm_two(self, tmp_path):
        text = "[gates.mrr]\nat_least = 0.5\n"
        assert self.count(tmp_path, f"{text}[gates.coverage]\nat_least = 0.5\n") - self.count(tmp_path, text) == 12

    def test_a_window_adds_four_gauges_per_metric_and_source(self, tmp_path):
        """Every metric without gold and the human label, once each."""
        one, two, three = (
            self.count(tmp_path, f"windows = {w}\n") for w in ('["1h"]', '["1h", "2h"]', '["1h", "2h", "3h"]')
        )
        plain = sum(not metric.needs_gold for metric in defaults().build_metrics().values())
        assert two - one == three - two == 4 * plain

    def test_gold_sets_and_pipelines_multiply(self, tmp_path):
        gold = '[gold.g]\npath = "g"\n'
        assert self.count(tmp_path, gold) > 2 * self.count(tmp_path, "")
        assert self.count(tmp_path, f"{gold}[pipelines.a]\n[pipelines.b]\n") > 1.8 * self.count(tmp_path, gold)

    def count(self, folder, text):
        (folder / "ragmon.toml").write_text(text, encoding="utf-8")
        return expected_series(load(folder / "ragmon.toml", environ={}))


class TestCheckCommand:
    def test_a_clean_file(self, run, tmp_path):
        rows = [{"qid": f"q{n}", "question": f"Question {n}?", "answerable": True} for n in range(30)]
        gold = "".join(json.dumps(row | {"gold_claim_substr": ["yes"]}) + "\n" for row in rows)
        (tmp_path / "g.jsonl").write_text(gold, encoding="utf-8")
        result = run("check", text=CONFIG)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr == "ragmon.toml: no problems\n"

    def test_every_problem_is_printed_with_its_place_and_hint(self, run):
        result = run("check", text="[sampling]\nrate = 2\n\n[smpling]\n")
        assert result.exit_code == 1
        lines = result.stdout.splitlines()
        assert lines[0] == "ragmon.toml:2: sampling.rate must be a number from 0 to 1: 2"
        assert lines[1].startswith("hint: ")
        assert lines[2] == "ragmon.toml:4: smpling is not a known key"
        assert lines[3] == "hint: did you mean sampling?"
        assert result.stderr == "ragmon.toml: 2 problems\n"

    def test_a_file_nobody_can_read_exits_3(self, run):
        result = run("check", "--config", "gone.toml")
        assert result.exit_code == 3
        assert result.stderr.startswith("error: gone.toml: there is no such file\nhint: ")

    def test_the_variable_is_followed(self, run, tmp_path):
        (tmp_path / "other.toml").write_text("x = 1\n")
        result = run("check", text="", RAGMON_CONFIG="other.toml")
        assert (result.exit_code, result.stdout.splitlines()[0]) == (1, "other.toml:1: x is not a known key: 1")

    def test_without_a_file_the_defaults_are_clean(self, run):
        result = run("check")
        assert result.exit_code == 0
        assert "no ragmon.toml here" in result.stderr


class TestShowCommand:
    def test_text_has_a_line_per_value(self, run):
        result = run("show", text=CONFIG)
        assert result.exit_code == 0
        lines = {line.split()[0]: line for line in result.stdout.splitlines()}
        assert lines["sampling.slow_above"].split() == ["sampling.slow_above", '"8s"', "default"]
        assert lines["serve.tls"].endswith("ragmon.toml:20")
        assert "(not set)" in lines["links.trace"]
        assert "hunter2" not in result.stdout

    def test_json_has_value_and_origin_of_every_key(self, run):
        result = run("show", "--format", "json", text=CONFIG)
        found = json.loads(result.stdout)
        assert found["sampling.rate"] == {"value": 0.05, "origin": "default"}
        assert found["pipelines.support.sampling.rate"] == {"value": 0.2, "origin": "ragmon.toml:2"}
        assert found[SERIES]["value"] > 0

    def test_a_broken_file_is_not_shown(self, run):
        result = run("show", text="sampling.rate = 2\n")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr.startswith("error: ragmon.toml:1: sampling.rate")

    def test_a_file_nobody_can_read_exits_3(self, run):
        assert run("show", "--config", ".").exit_code == 3


def test_a_probe_is_told_by_its_target_without_its_secrets(configured):
    settings = configured(CONFIG)
    assert [spec.asks for spec in settings.probes] == ["https://rag.example/ask"]
