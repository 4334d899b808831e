"""[gates] becomes gates: presets, a pipeline's own, defaults, and the thresholds that are refused."""

from __future__ import annotations

import pytest

from ragmon.config.gates import PRESETS
from ragmon.config.load import check, load
from ragmon.core.errors import ConfigError

GOLD = '[gold.g]\npath = "g.jsonl"\ntags = { product = "x" }\n'


@pytest.fixture
def settings(tmp_path):
    """The settings of a text."""

    def _settings(text: str):
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ={})

    return _settings


@pytest.fixture
def problems(tmp_path):
    """What `check` says of a text."""

    def _problems(text: str):
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return check(path, environ={})

    return _problems


def named(policy):
    return {gate.name: gate for gate in policy.gates}


class TestWhichGatesHold:
    def test_nothing_said_is_the_default_preset(self, settings):
        assert settings("").policy().gates == PRESETS["default"]

    def test_a_table_that_says_only_how_to_judge_keeps_the_default_preset(self, settings):
        policy = settings('[gates]\nverdict = "point"\non_insufficient = "pass"\n').policy()
        assert policy.gates == PRESETS["default"]
        assert (policy.mode, policy.on_insufficient) == ("point", "pass")

    @pytest.mark.parametrize("preset", PRESETS)
    def test_every_preset_can_be_named(self, settings, preset):
        assert settings(f'gates.preset = "{preset}"\n').policy().gates == PRESETS[preset]

    def test_own_gates_without_a_preset_stand_alone(self, settings):
        assert list(named(settings("[gates.mrr]\nat_least = 0.5\n").policy())) == ["mrr"]

    def test_own_gates_are_added_to_a_named_preset(self, settings):
        text = '[gates]\npreset = "wfgy-eval"\n[gates.mrr]\nat_least = 0.5\n'
        assert list(named(settings(text).policy())) == [gate.name for gate in PRESETS["wfgy-eval"]] + ["mrr"]

    def test_an_own_gate_replaces_the_presets_gate_of_its_name(self, settings):
        text = '[gates]\npreset = "wfgy-eval"\n[gates.answer_precision]\nat_least = 0.9\n'
        gates = named(settings(text).policy())
        assert len(gates) == len(PRESETS["wfgy-eval"])
        assert gates["answer_precision"].threshold == 0.9

    def test_a_pipelines_gates_are_added_to_those_of_all(self, settings):
        text = "[gates.mrr]\nat_least = 0.5\n[pipelines.a.gates.coverage]\nat_least = 0.6\n[pipelines.b]\n"
        found = settings(text)
        assert list(named(found.policy("a"))) == ["mrr", "coverage"]
        assert list(named(found.policy("b"))) == ["mrr"]
        assert [(gate.pipeline, gate.name) for gate in found.policy().gates] == [
            ("a", "mrr"),
            ("a", "coverage"),
            ("b", "mrr"),
        ]

    def test_a_pipelines_gates_are_added_to_the_default_preset(self, settings):
        gates = named(settings("[pipelines.a.gates.mrr]\nat_least = 0.6\n").policy("a"))
        assert set(gates) == {gate.name for gate in PRESETS["default"]} | {"mrr"}

    def test_a_pipelines_gate_replaces_the_whole_gate_of_its_name(self, settings):
        text = "[gates.mrr]\nat_least = 0.5\nmin_samples = 99\n[pipelines.a.gates.mrr]\nat_least = 0.6\n"
        gate = named(settings(text).policy("a"))["mrr"]
        assert (gate.threshold, gate.min_samples) == (0.6, 30)

    def test_a_pipelines_preset_takes_the_place_of_the_presets_of_all(self, settings):
        text = '[gates]\npreset = "wfgy-eval"\n[pipelines.a.gates]\npreset = "wfgy-live"\n'
        assert set(named(settings(text).policy("a"))) == {gate.name for gate in PRESETS["wfgy-live"]}

    def test_a_gate_on_the_gold_set_of_one_pipeline_judges_that_pipeline_only(self, settings):
        text = '[pipelines.a]\n[pipelines.b]\n[gold.g]\npath = "g"\npipeline = "a"\n[gates.mrr]\nat_least = 0.5\n'
        found = settings(f'{text}gold = "g"\n')
        assert [gate.pipeline for gate in found.policy().gates] == ["a"]

    def test_a_pipeline_nobody_configured_has_the_gates_of_all_under_its_own_name(self, settings):
        gates = settings("[gates.mrr]\nat_least = 0.5\n[pipelines.a]\n").policy("new").gates
        assert [(gate.pipeline, gate.name) for gate in gates] == [("new", "mrr")]

    def test_pipelines_that_judge_differently_have_no_joint_policy(self, settings):
        found = settings('[pipelines.a.gates]\nverdict = "point"\n[pipelines.b]\n')
        assert found.policy("a").mode == "point"
        assert found.policy("b").mode == "interval"
        with pytest.raises(ConfigError, match="differ") as caught:
            found.policy()
        assert "a, b" in caught.value.hint


class TestWhatAGateSays:
    def test_every_key_reaches_the_gate(self, settings):
        text = f"""{GOLD}
[slices]
lang = ["de"]
[gates.precision-de]
metric = "answer_precision"
at_least = 0.8
source = "match"
gold = "g"
slice = {{ lang = "de" }}
window = "24h"
estimand = "gold_set"
min_samples = 7
page_below = 0.6
severity = "ticket"
"""
        (gate,) = settings(text).policy().gates
        assert (gate.name, gate.metric, gate.threshold, gate.direction) == (
            "precision-de",
            "answer_precision",
            0.8,
            "at_least",
        )
        assert (gate.source, gate.gold, gate.where, gate.window) == ("match", "g", "lang=de", "24h")
        assert (gate.estimand, gate.min_samples, gate.page_beyond, gate.severity) == ("gold_set", 7, 0.6, "ticket")

    def test_a_name_with_a_cut_is_a_metric_and_is_counted(self, settings):
        found = settings('[gates."recall@7"]\nat_least = 0.5\n')
        assert named(found.policy())["recall@7"].metric == "recall@7"
        assert "recall@7" in found.build_metrics()

    def test_cuts_of_every_pipeline_are_counted(self, settings):
        keys = settings("[metrics]\nk = [2]\n[pipelines.a.metrics]\nk = [4]\n").build_metrics()
        assert {"recall@2", "recall@4", "mrr"} <= set(keys)
        assert "recall@10" not in keys

    def test_the_kinds_that_are_no_metric_bring_their_own(self, settings):
        text = '[gates.slow]\nkind = "quantile_ratio"\nat_most = 1.5\n[gates.one]\nkind = "distinct"\nat_most = 1\n'
        gates = named(settings(text).policy())
        assert (gates["slow"].metric, gates["slow"].threshold) == ("latency", 1.5)
        assert gates["one"].metric == "index_hash"

    def test_without_a_window_the_one_nearest_an_hour_holds(self, settings):
        text = 'windows = ["10m", "30m", "24h"]\n'
        assert {gate.window for gate in settings(text).policy().gates} == {"30m"}
        assert settings(f"{text}[gates.mrr]\nat_least = 0.5\n").policy().gates[0].window == "30m"

    def test_a_slice_may_be_a_tag_of_the_gold_set(self, settings):
        found = settings(f'{GOLD}[gates.mrr]\nat_least = 0.5\ngold = "g"\nslice = {{ product = "x" }}\n')
        assert found.policy().gates[0].where == "product=x"

    @pytest.mark.parametrize(
        ("gate", "probed", "source", "awaits"),
        [
            ("[gates.answer_precision]\nat_least = 0.8\n", True, None, "probe"),
            ("[gates.answer_precision]\nat_least = 0.8\n", False, None, "match"),
            ('[gates.answer_precision]\nat_least = 0.8\nsource = "match"\n', True, "match", ""),
            ("[gates.coverage]\nat_least = 0.8\n", True, "live", ""),
            ('[gates.coverage]\nat_least = 0.8\ngold = "g"\n', True, None, "probe"),
            ("[gates.answer_correct]\nat_least = 0.8\n", True, "label", ""),
            ('[gates.x]\nat_most = 1.2\nkind = "quantile_ratio"\n', True, "live", ""),
        ],
    )
    def test_the_default_source_depends_on_the_metric(self, settings, gate, probed, source, awaits):
        """On gold it is the first with data; what it waits for depends on probing."""
        found = settings(GOLD + ('[probe.p]\ntarget = "a:b"\n' if probed else "") + gate).policy(live=True).gates[0]
        assert (found.source, found.awaits) == (source, awaits)

    def test_files_are_judged_on_whatever_source_they_hold(self, settings):
        """Records of a file may name no source, so a gate that names none keeps none."""
        assert settings("[gates.coverage]\nat_least = 0.8\n").policy().gates[0].source is None


GATE = "[gates.x]\nmetric = 'coverage'\n"
CASES = {
    "no threshold": ("[gates.mrr]\nmin_samples = 5\n", 1, "has no threshold", "at_least = 0.80"),
    "two thresholds": (
        "[gates.mrr]\nat_least = 0.1\nat_most = 0.2\n",
        1,
        "has both at_least and at_most",
        "keep one",
    ),
    "a threshold above 1": ("[gates.mrr]\nat_least = 1.5\n", 2, "from 0 to 1: 1.5", "80 %"),
    "a threshold below 0": ("[gates.mrr]\nat_most = -0.1\n", 2, "from 0 to 1: -0.1", "80 %"),
    "a threshold that is a boolean": ("[gates.mrr]\nat_least = true\n", 2, "finite number: True", "without quotes"),
    "a threshold that is text": ('[gates.mrr]\nat_least = "0.8"\n', 2, "finite number: '0.8'", "without quotes"),
    "an infinite threshold": ("[gates.mrr]\nat_least = inf\n", 2, "finite number: inf", "0.8"),
    "an unknown metric by name": ("[gates.precison]\nat_least = 0.5\n", 1, "is not the name of a metric", "precision"),
    "an unknown metric": (
        '[gates.x]\nmetric = "answer_precison"\nat_least = 0.5\n',
        2,
        "is not the name of a metric",
        "did you mean answer_precision",
    ),
    "a cut of a metric that has none": (
        '[gates."mrr@5"]\nat_least = 0.5\n',
        1,
        "is not the name of a metric",
        "did you mean mrr?",
    ),
    "a judge's score": (
        "[gates.judge_tone]\nat_least = 0.5\n",
        1,
        "the score of a judge",
        "no gate may use its score alone",
    ),
    "an unknown preset": ('[gates]\npreset = "wfgy-evil"\n', 2, "is not a preset", "did you mean wfgy-eval"),
    "an unknown key": (f"{GATE}at_last = 0.5\nat_least = 0.5\n", 3, "is not a known key", "did you mean at_least"),
    "an unknown source": (f'{GATE}at_least = 0.5\nsource = "prob"\n', 4, "must be", "did you mean probe?"),
    "an unknown window": (
        f'{GATE}at_least = 0.5\nwindow = "2h"\n',
        4,
        "is not a window",
        'windows = ["5m", "1h", "24h", "2h"] adds it; did you',
    ),
    "no sample at all": (f"{GATE}at_least = 0.5\nmin_samples = 0\n", 4, "at least 1", "whole number"),
    "an unknown gold set": (
        f'{GATE}at_least = 0.5\ngold = "goldd"\n[gold.gold]\npath = "g"\n',
        4,
        "is not a gold set",
        "did you mean gold?",
    ),
    "gold where none was declared": (f'{GATE}at_least = 0.5\ngold = "g"\n', 4, "is not a gold set", "none are defined"),
    "gold of live traffic": (
        f'{GATE}at_least = 0.5\nsource = "live"\ngold = "g"\n[gold.g]\npath = "g"\n',
        5,
        "does not go with source live",
        'source = "match"',
    ),
    "gold that is not used so": (
        f'{GATE}at_least = 0.5\nsource = "probe"\ngold = "g"\n[gold.g]\npath = "g"\nuse = ["match"]\n',
        5,
        "is not used for source probe",
        'add "probe"',
    ),
    "a gold metric of live traffic": (
        '[gates.mrr]\nat_least = 0.5\nsource = "live"\n',
        3,
        "never has mrr",
        '"probe" or "match"',
    ),
    "human labels of probes": (
        '[gates.answer_correct]\nat_least = 0.5\nsource = "probe"\n',
        3,
        "never has answer_correct",
        '"label"',
    ),
    "a slice of two tags": (
        f'{GATE}at_least = 0.5\nslice = {{ a = "x", b = "y" }}\n[slices]\na = ["x"]\nb = ["y"]\n',
        4,
        "more than one tag",
        "keep one",
    ),
    "a slice nobody declared": (
        f'{GATE}at_least = 0.5\nslice = {{ lang = "de" }}\n',
        4,
        "names a tag that is not declared",
        '[slices] lang = ["de"]',
    ),
    "a value nobody declared": (
        f'{GATE}at_least = 0.5\nslice = {{ lang = "dee" }}\n[slices]\nlang = ["de", "en"]\n',
        4,
        "has a value of lang that is not declared",
        "de",
    ),
    "a page on the good side": (f"{GATE}at_least = 0.5\npage_below = 0.6\n", 4, "beyond the threshold", "below 0.5"),
    "a page at the threshold": (f"{GATE}at_most = 0.5\npage_above = 0.5\n", 4, "beyond the threshold", "above 0.5"),
    "a page of the other direction": (f"{GATE}at_least = 0.5\npage_above = 0.6\n", 4, "at_least", "page_below"),
    "a page out of range": (f"{GATE}at_most = 0.5\npage_above = 2\n", 4, "from 0 to 1", "80 %"),
    "a metric for a kind that has its own": (
        f'{GATE}at_most = 1.5\nkind = "quantile_ratio"\n',
        2,
        "does not go with kind quantile_ratio",
        '"latency"',
    ),
    "no ratio": ('[gates.x]\nat_most = 0\nkind = "quantile_ratio"\n', 2, "above 0", "1.3 times"),
    "half an index": ('[gates.x]\nat_most = 1.5\nkind = "distinct"\n', 2, "whole number", "index hashes"),
    "a name with a colon": ('[gates."a:b"]\nmetric = "mrr"\nat_least = 0.5\n', 1, "colon", '"a-b"'),
    "a name with a slash": ('[gates."a/b"]\nmetric = "mrr"\nat_least = 0.5\n', 1, "not usable as a name", "slash"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_in_a_gate_is_named_with_its_line_and_a_hint(problems, case):
    text, line, message, hint = CASES[case]
    (problem,) = problems(text)
    assert problem.line == line
    assert problem.key.startswith("gates")
    assert message in str(problem)
    assert hint in problem.hint


def test_a_mistake_in_a_pipelines_gate_is_named_there(problems):
    (problem,) = problems('[pipelines.a.gates.mrr]\nat_least = 0.5\nwindow = "2h"\n')
    assert (problem.line, problem.key) == (3, "pipelines.a.gates.mrr.window")


def test_a_broken_gold_set_is_not_blamed_on_the_gate_that_names_it(problems):
    found = problems(f'{GATE}at_least = 0.5\ngold = "g"\n[gold.g]\nuse = ["match"]\n')
    assert [problem.key for problem in found] == ["gold.g.path"]
