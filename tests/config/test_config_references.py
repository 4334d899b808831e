"""Gold sets, probes and pipelines refer to each other by names that must exist and agree."""

from __future__ import annotations

import pytest

from ragmon.config.load import check, load
from ragmon.core.errors import ConfigError

CASES = {
    "a gold set without a file": ('[gold.g]\ntags = { a = "b" }\n', 1, "gold.g.path", "is missing", 'path = "gold'),
    "a gold set of an unknown pipeline": (
        '[pipelines.support]\n[gold.g]\npath = "g.jsonl"\npipeline = "suport"\n',
        4,
        "gold.g.pipeline",
        "is not a pipeline",
        "did you mean support?",
    ),
    "a gold set defined twice": (
        '[gold.g]\npath = "g.jsonl"\n[pipelines.a.gold.g]\npath = "g.jsonl"\n',
        3,
        "pipelines.a.gold.g",
        "is defined twice",
        "choose another",
    ),
    "a probe defined twice": (
        '[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n[pipelines.a.probe.p]\ntarget = "a:b"\n',
        5,
        "pipelines.a.probe.p",
        "is defined twice",
        "choose another",
    ),
    "a gold set without any file": ("[gold.g]\npath = []\n", 2, "gold.g.path", "must name a file", '"gold.jsonl"'),
    "a gold set in a nameless file": ('[gold.g]\npath = ""\n', 2, "gold.g.path", "path of a file", "in quotes"),
    "a gold set without a name": ('[gold.""]\npath = "g"\n', 1, 'gold.""', "not usable as a name", "printable"),
    "a gold set inside the wrong pipeline": (
        '[pipelines.a.gold.g]\npath = "g.jsonl"\npipeline = "b"\n',
        3,
        "pipelines.a.gold.g.pipeline",
        "contradicts the table it is in",
        "leave pipeline out",
    ),
    "a probe without a target": ('[probe.p]\n[gold.g]\npath = "g"\n', 1, "probe.p.target", "is missing", "myapp.rag"),
    "a probe of no gold set": (
        '[probe.p]\ntarget = "a:b"\ngold = "h"\n[gold.g]\npath = "g"\n',
        3,
        "probe.p.gold",
        "is not a gold set",
        "one of: g",
    ),
    "a probe of one of several gold sets": (
        '[probe.p]\ntarget = "a:b"\n[gold.g]\npath = "g"\n[gold.h]\npath = "h"\n',
        1,
        "probe.p.gold",
        "is missing",
        "one of: g, h",
    ),
    "a probe of a gold set that is only matched": (
        '[probe.p]\ntarget = "a:b"\n[gold.g]\npath = "g"\nuse = ["match"]\n',
        1,
        "probe.p.gold",
        "is not used for probes",
        'add "probe"',
    ),
    "a probe through no pipeline in particular": (
        '[pipelines.a]\n[pipelines.b]\n[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n',
        5,
        "probe.p",
        "which pipeline",
        "[pipelines.NAME.probe.p]",
    ),
    "a probe through another pipeline than its gold set's": (
        '[pipelines.a.gold.g]\npath = "g"\n[pipelines.b.probe.p]\ntarget = "a:b"\n',
        3,
        "pipelines.b.probe.p.gold",
        "does not judge b",
        "judges a",
    ),
    "a target that is neither": ('[probe.p]\ntarget = "rag"\n', 2, "probe.p.target", "function or an address", "myapp"),
    "a body that asks nothing": (
        '[gold.g]\npath = "g"\n[probe.p]\ntarget = "http://x"\nbody = "{}"\n',
        3,
        "probe.p",
        "without the question",
        "{question}",
    ),
    "an answer mapping with an unknown field": (
        '[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\nanswer = { clam = "x" }\n',
        5,
        "probe.p.answer",
        "unknown field 'clam'",
        "claim",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_name_that_leads_nowhere_is_reported_with_its_line_and_a_hint(tmp_path, case):
    text, line, key, message, hint = CASES[case]
    path = tmp_path / "ragmon.toml"
    path.write_text(text, encoding="utf-8")
    (problem,) = check(path, environ={})
    assert (problem.line, problem.key) == (line, key)
    assert message in problem.message
    assert hint in problem.hint


@pytest.fixture
def settings(tmp_path):
    """The settings of a text."""

    def _settings(text: str):
        path = tmp_path / "ragmon.toml"
        path.write_text(text, encoding="utf-8")
        return load(path, environ={})

    return _settings


def test_a_gold_set_inside_a_pipeline_belongs_to_it(settings):
    (spec,) = settings('[pipelines.a.gold.g]\npath = "g"\n').gold
    assert (spec.name, spec.pipeline) == ("g", "a")


def test_gold_of_one_pipeline_is_asked_before_gold_for_any(settings):
    found = settings('[gold.any]\npath = "g"\n[pipelines.a.gold.own]\npath = "g"\n').gold
    assert [spec.name for spec in found] == ["own", "any"]


@pytest.mark.parametrize(
    ("text", "pipeline"),
    [
        ('[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n', "default"),
        ('[pipeline]\nname = "shop"\n[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n', "shop"),
        ('[pipelines.a]\n[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n', "a"),
        ('[pipelines.a]\n[pipelines.b]\n[gold.g]\npath = "g"\npipeline = "b"\n[probe.p]\ntarget = "a:b"\n', "b"),
        ('[gold.g]\npath = "g"\n[pipelines.a.probe.p]\ntarget = "a:b"\n[pipelines.b]\n', "a"),
    ],
)
def test_a_probe_asks_the_only_gold_set_through_the_nearest_pipeline(settings, text, pipeline):
    """The pipeline it stands in, else its gold set's, else the only or default one."""
    found = settings(text)
    assert [(probe.gold, probe.pipeline) for probe in found.probes] == [("g", pipeline)]
    assert [name for name in found.expected_pipelines if found.of(name).has_probe] == [pipeline]


def test_a_pipeline_nobody_named_has_the_top_level_without_what_is_of_one_pipeline(settings):
    """Its gates, but none on gold of another pipeline, and no probes that go through another."""
    text = '[pipeline]\nname = "shop"\n[gold.g]\npath = "g"\npipeline = "shop"\n[probe.p]\ntarget = "a:b"\n'
    found = settings(text + '[gates.compliance]\nat_least = 0.9\n[gates.hit_rate]\nat_least = 0.8\ngold = "g"\n')
    assert [gate.name for gate in found.of("shop").resolved_gates] == ["compliance", "hit_rate"]
    assert [(gate.pipeline, gate.name) for gate in found.of("new").resolved_gates] == [("new", "compliance")]
    assert (found.of("shop").has_probe, found.of("new").has_probe) == (True, False)


def test_probes_without_a_named_pipeline_go_through_whatever_comes(settings):
    found = settings('[gold.g]\npath = "g"\n[probe.p]\ntarget = "a:b"\n')
    assert found.of("helpdesk").has_probe


def test_a_pipeline_table_without_a_name_names_no_pipeline(settings):
    assert dict(settings("[pipeline]\n").pipelines) == {}


def test_no_gold_set_is_called_as_labels_are(settings):
    with pytest.raises(ConfigError, match=r"gold\.labels is taken") as refused:
        settings('[gold.labels]\npath = "g"\n')
    assert "labels are shown as gold" in refused.value.hint
