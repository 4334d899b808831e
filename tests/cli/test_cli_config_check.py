"""`ragmon config check` beyond the syntax: gold files, the direction of gates, gates without a chance, variables."""

from __future__ import annotations

import json

import pytest

from ragmon.config.load import load
from tests.support.command_line import ragmon

GOLD = '[gold.g]\npath = "gold.jsonl"\n'
GATE = "[gates.answer_precision]\nat_least = 0.8\n"


@pytest.fixture
def checked(tmp_path):
    """Checks a text beside a gold file with some items; returns the exit code and the lines."""

    def check(text, *, items=6, **environ):
        rows = [{"qid": f"q{n}", "question": f"Question {n}?", "answerable": True} for n in range(items)]
        rows = [
            row | {"gold_claim_substr": ["yes"], "tags": {"lang": "de" if n % 2 else "en"}}
            for n, row in enumerate(rows)
        ]
        (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        (tmp_path / "ragmon.toml").write_text(text, encoding="utf-8")
        done = ragmon("config", "check", cwd=tmp_path, env=environ)
        return done.code, done.out.splitlines(), done.err

    return check


class TestGold:
    def test_a_missing_file_is_an_error_with_its_line(self, checked):
        code, lines, told = checked('[gold.g]\ntags = {}\npath = "gone.jsonl"\n')
        assert (code, told) == (1, "ragmon.toml: 1 problem\n")
        assert lines[0] == "ragmon.toml:3: gold.g.path cannot be used: gone.jsonl: no such file"

    def test_a_broken_file_is_an_error_with_both_places(self, checked, tmp_path):
        (tmp_path / "broken.jsonl").write_text('{"qid": "a"}\n')
        code, lines, _ = checked('[pipelines.a.gold.g]\npath = "broken.jsonl"\n')
        assert code == 1
        assert lines[0].startswith("ragmon.toml:2: pipelines.a.gold.g.path cannot be used: broken.jsonl:1: ")

    def test_so_is_the_gold_of_capture(self, checked):
        code, lines, _ = checked('[capture]\ngold = "gone.jsonl"\n')
        assert (code, lines[0]) == (1, "ragmon.toml:2: capture.gold cannot be used: gone.jsonl: no such file")

    def test_a_set_is_checked_against_what_is_frozen(self, checked):
        code, lines, _ = checked(f'{GOLD}frozen = "gone.json"\n')
        assert code == 1
        assert "gone.json" in lines[0]


@pytest.mark.parametrize(
    ("gate", "hint"),
    [
        ("[gates.error_rate]\nat_least = 0.05\n", "hint: at_most = 0.05: error_rate is better the lower it is"),
        ("[gates.coverage]\nat_most = 0.7\n", "hint: at_least = 0.7: coverage is better the higher it is"),
        ('[gates.slow]\nkind = "quantile_ratio"\nat_least = 1.3\n', "hint: at_most = 1.3: latency is better"),
    ],
)
def test_a_gate_the_wrong_way_round_is_an_error(checked, gate, hint):
    code, lines, _ = checked(gate)
    assert code == 1
    assert " is the wrong way round: " in lines[0]
    assert lines[1].startswith(hint)


def test_the_nearest_metric_is_named(checked):
    code, lines, _ = checked("[gates.answer_precison]\nat_least = 0.8\n")
    assert (code, lines) == (
        1,
        [
            "ragmon.toml:1: gates.answer_precison is not the name of a metric: 'answer_precison'",
            "hint: did you mean answer_precision?",
        ],
    )


class TestGatesWithoutAChance:
    def test_too_few_items_are_a_warning(self, checked):
        code, lines, told = checked(GOLD + GATE)
        assert (code, told) == (0, "ragmon.toml: no problems, 1 warning\n")
        assert lines[0] == (
            "warning: ragmon.toml:3: gates.answer_precision can never fail in a live window: "
            "gold g has 6 items, 30 are needed"
        )

    def test_enough_items_are_none(self, checked):
        assert checked(GOLD + GATE, items=30) == (0, [], "ragmon.toml: no problems\n")

    def test_what_a_gate_needs_is_its_own_number(self, checked):
        assert checked(f"{GOLD}{GATE}min_samples = 6\n")[1] == []

    def test_a_floor_near_nothing_needs_more_than_min_samples(self, checked):
        lines = checked(f"{GOLD}[gates.hit_rate]\nat_least = 0.05\n", items=40)[1]
        assert lines[0].endswith("gold g has 40 items, 73 are needed")

    def test_a_slice_has_fewer_items(self, checked):
        text = f'{GOLD}{GATE}slice = {{ lang = "de" }}\n[slices]\nlang = ["de"]\n'
        assert checked(text, items=40)[1][0].endswith("gold g has 20 items, 30 are needed")
        assert checked(text, items=60)[1] == []

    def test_probes_count_as_often_as_they_are_asked_in_the_window(self, checked):
        text = GOLD + GATE + '[probe.p]\ntarget = "m:f"\nevery = "%s"\n'
        assert checked(text % "1h")[1][0].endswith("gold g has 6 items, at most 12 probes in 1h, 30 are needed")
        assert checked(text % "10m")[1] == []

    @pytest.mark.parametrize("source", ["probe", "replay"])
    def test_a_run_of_the_whole_set_needs_no_number(self, checked, source):
        assert checked(f'{GOLD}{GATE}source = "{source}"\n')[1] == []

    def test_a_gate_of_another_kind_is_not_meant(self, checked):
        text = f'{GOLD}[gates.index]\nkind = "distinct"\nat_most = 1\nsource = "match"\ngold = "g"\n'
        assert checked(text)[1] == []

    def test_the_point_estimate_needs_no_number(self, checked):
        assert checked(f'[gates]\nverdict = "point"\n{GOLD}{GATE}')[1] == []

    def test_gates_of_a_preset_are_told_of_at_once(self, checked):
        code, lines, _ = checked(GOLD)
        (warning, _) = lines
        assert code == 0
        assert warning.startswith("warning: ragmon.toml: gates (answer_precision, citation_hit_rate, ")

    def test_gates_without_gold_are_not_meant(self, checked):
        assert checked(f"{GOLD}[gates.error_rate]\nat_most = 0.05\n")[1] == []


class TestVariables:
    @pytest.mark.parametrize("name", ["RAGMON_SAMPEL", "RAGMON_SAMPL", "RAGMON_SAMPLES"])
    def test_a_mistyped_one_is_a_warning_without_its_value(self, checked, name):
        code, lines, told = checked("", **{name: "hunter2"})
        assert (code, told) == (0, "ragmon.toml: no problems, 1 warning\n")
        assert lines == [f"warning: environment {name}: {name} is not read", "hint: did you mean RAGMON_SAMPLE?"]

    def test_a_mistyped_one_is_warned_of_where_the_configuration_is_used(self, monkeypatch, caplog):
        monkeypatch.setenv("RAGMON_SAMPL", "hunter2")
        load()
        load()
        assert caplog.messages == ["RAGMON_SAMPL is not read: did you mean RAGMON_SAMPLE?"]

    def test_those_of_kubernetes_are_none(self, checked):
        address = "tcp://10.0.0.1:4318"
        names = ("RAGMON_PORT", "RAGMON_SERVICE_HOST", "RAGMON_SERVICE_PORT", "RAGMON_SERVICE_PORT_OTLP")
        of_port = [f"RAGMON_PORT_4318_TCP{end}" for end in ("", "_PROTO", "_PORT", "_ADDR")]
        assert checked("", **dict.fromkeys((*names, *of_port), address))[:2] == (0, [])

    def test_those_that_are_read_are_none(self, checked):
        assert checked("", RAGMON_SAMPLE="0.5", RAGMON_STRICT="1", RAGMON_BUILD="b1")[:2] == (0, [])
