"""Declared gates as alarms: each has one, under its own name, looking where it says, within the budget of its tier."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.pipelines import AlarmEngine
from ragmon.alarms.plan import AlarmBudget, plan
from ragmon.config.gates import PRESETS
from ragmon.core import constants
from ragmon.core.policy import Gate
from ragmon.core.record import Answer, Record
from ragmon.metrics import build
from ragmon.scoring.score_table import ScoreTable
from ragmon.testing import make_record
from tests.support.alarming import GOOD, NOON, Traffic, World

PAGE, LOOK, TICKET = constants.PAGE, constants.LOOK, constants.TICKET
METRICS = build()
MONTH, DAY = 43_200, 1_440
"""Minutes."""


def gated(configured, text):
    return World(configured(text))


def alerts(world):
    """What fired, by name, metric and urgency."""
    return {(edge.alert, edge.metric, edge.severity) for edge in world.edges if edge.state == "firing"}


# --- what a gate says -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PRESETS)
def test_every_gate_of_every_preset_has_an_alarm_of_its_name(configured, preset):
    world = gated(configured, f'gates.preset = "{preset}"\n')
    world.run(1)
    severities = {state.alert: state.severity for state in world.alarms.states()}
    assert {gate.name: gate.severity for gate in PRESETS[preset]}.items() <= severities.items()


def test_a_gate_says_how_urgent_it_is_and_how_it_is_called(configured):
    text = '[metrics]\ncitations_required = true\n[gates.broken]\nmetric = "compliance"\nat_least = 0.98\n'
    world = gated(configured, f'{text}severity = "ticket"\n')
    world.run(10, listless=0.5)
    assert alerts(world) == {("broken", "compliance", TICKET)}


@pytest.mark.slow
def test_a_gate_on_latency_is_about_the_share_above_so_many_times_the_usual_p95(configured):
    text = '[gates.latency_p95]\nkind = "quantile_ratio"\nat_most = 1.5\nseverity = "page"\n'
    world = gated(configured, text)
    world.run(75)
    world.run(30, slow=1.2)
    assert (world.firing, alerts(world)) == ({"latency:look"}, {("latency:look", "latency", LOOK)})
    world.run(30, slow=2.0)
    assert ("latency_p95", "latency", PAGE) in alerts(world)
    world.run(30)
    assert "latency_p95" not in world.firing


def test_a_gate_on_latency_looks_where_it_says(configured):
    """Users wait, probes do not: a gate on probes has nothing to say."""
    world = gated(configured, '[gates.waiting]\nkind = "quantile_ratio"\nat_most = 1.5\nsource = "probe"\n')
    world.run(75)
    quick = Traffic(2, live=0, gold=20)
    for _ in range(30):
        waiting = [r for r in Traffic(world.minute).minute(world.minute, slow=3.0) if r.source == "live"]
        world.feed([*waiting, *quick.minute(world.minute)])
    assert "latency:look" in world.firing
    assert "waiting" not in world.firing


@pytest.mark.slow
@pytest.mark.parametrize(("allowed", "severity"), [(1, "page"), (1, "ticket"), (2, "page")])
def test_a_gate_on_distinct_indexes_is_the_alarm_on_the_index(configured, allowed, severity):
    text = f'[gates.one_index]\nkind = "distinct"\nat_most = {allowed}\nseverity = "{severity}"\n'
    world = gated(configured, text)
    for index in ("i1", "i2", "i3"):
        world.run(2, index=index)
    assert alerts(world) == {("one_index", "index_hash", severity)}
    world.run(60, index="i3")
    last_seen = {1: 3, 2: 1}[allowed]
    assert [(edge.state, edge.ts / 60 - NOON) for edge in world.edges] == [
        ("firing", 2 * allowed + 1),
        ("resolved", last_seen + 60 + 1),
    ]


def test_every_gate_on_distinct_indexes_has_its_alarm(configured):
    gates = "".join(
        f'[gates.{name}]\nkind = "distinct"\nat_most = {n}\n' for name, n in (("strict", 1), ("lenient", 2))
    )
    world = gated(configured, gates)
    for index in ("i1", "i2", "i3"):
        world.run(1, index=index)
    assert world.firing == {"strict", "lenient"}


def test_indexes_count_under_one_build_within_an_hour():
    world = World()
    for number in "123":
        world.feed(Traffic(1, build=f"b{number}").minute(world.minute, index=f"i{number}"))
    assert world.firing == set(), "every build has its own"
    world.run(60, index="i4")
    world.run(1, index="i5")
    assert world.firing == {"index_hash:drift"}


def test_a_gate_may_ask_for_everything(configured):
    """Of a mean of exactly 1 the first failure would be proof; what it takes is a few of them."""
    text = "[metrics]\ncitations_required = true\n[gates.compliance]\nat_least = 1.0\n"
    world = gated(configured, f"{text}[gates.error_rate]\nat_most = 0.0\n")
    perfect = {"listless": 0.0, "error": 0.0, "own_words": 0.0}
    world.run(30, **perfect)
    assert world.feed([Record(ts=60.0 * world.minute, source="live", q="?", error="timeout", **GOOD)]) == []
    assert world.run(30, **perfect) == []
    world.run(5, **{**perfect, "listless": 0.1, "error": 0.1})
    assert {"compliance", "error_rate"} <= world.firing


@pytest.mark.parametrize(("cluster", "expected"), [('["session", "question"]', set()), ('["session"]', {"error_rate"})])
def test_a_pipeline_chooses_what_makes_one_observation(configured, cluster, expected):
    """Everybody asks the same question, and it always fails."""
    world = gated(configured, f"[metrics]\ncluster = {cluster}\n")
    for _ in range(20):
        fields = {"ts": 60.0 * world.minute, "source": "live"}
        failed = [Record(trace_id=f"{n}", q="Is it?", error="timeout", **fields) for n in range(20)]
        world.feed([*users(world, *[GOOD] * 40), *failed])
    assert world.firing == expected


# --- scores that were measured on text --------------------------------------------------------------------------------


def users(world, *answers):
    """A minute of requests, every one a question of its own."""
    ts = 60.0 * world.minute
    return [Record(ts=ts, source="live", q=f"{ts} {n}", **answer) for n, answer in enumerate(answers)]


def grounded(claim):
    return {"contexts": ["the river runs down"], "retrieved_ids": ["d1"], "answer_json": Answer(claim, ["d1"])}


def test_a_metric_that_is_measured_on_text_can_be_gated(configured):
    world = gated(configured, "[gates.groundedness]\nat_least = 0.6\n")
    for claim, expected in (("the river runs", set()), ("dogs bark twice", {"groundedness"}), ("the river", set())):
        for _ in range(25):
            world.feed(users(world, *[grounded(claim)] * 10))
        assert world.firing == expected


def test_a_refusal_is_not_an_ungrounded_answer(configured):
    """It is in no denominator of groundedness, neither in a window nor in an alarm."""
    world = gated(configured, "[gates.groundedness]\nat_least = 0.6\n")
    for _ in range(40):
        world.feed(users(world, *[grounded("the river runs")] * 10, *[grounded("not in context")] * 10))
    assert world.scorer.snapshot().find("default", "live").metrics["groundedness"].value == 1.0
    assert world.firing == set()


def test_a_gate_on_labels_looks_at_labels(configured):
    """They are the only source that ever has them, whatever else the pipeline has."""
    world = gated(configured, "[gates.answer_correct]\nat_least = 0.6\n")
    for _ in range(40):
        ts = 60.0 * world.minute
        told = {"ts": ts, "source": "label", "measures": {"answer_correct": 0.1}}
        labels = [make_record(trace_id=f"{ts} {n}", **told) for n in range(5)]
        world.feed([*users(world, GOOD), *labels])
    assert world.firing == {"answer_correct"}


# --- budgets ----------------------------------------------------------------------------------------------------------


def shares(watches):
    """What each tier would cost if every threshold were the mean time to a false alarm: pages a month, others a day."""
    pages = sum(MONTH / watch.threshold for watch in watches if watch.severity == PAGE)
    return pages, sum(DAY / watch.threshold for watch in watches if watch.severity != PAGE)


@given(
    st.lists(st.sampled_from([*METRICS]), unique=True, max_size=8),
    st.floats(0.01, 50),
    st.floats(0.01, 50),
    st.integers(1, 5),
)
def test_all_alarms_of_a_tier_share_its_budget_in_equal_parts(gated_on, pages, looks, pipelines):
    """However many there are; each false alarm must take as long as its part of the budget lasts."""
    gates = [
        Gate(name, name, 0.8, "at_least", severity=(PAGE, TICKET)[number % 2]) for number, name in enumerate(gated_on)
    ]
    watches = plan(gates, METRICS, AlarmBudget(pages, looks, pipelines))
    spent = shares(watches)
    assert [pipelines * one for one in spent] == pytest.approx([pages, looks])
    assert len({watch.threshold for watch in watches if watch.severity == PAGE}) == 1
    assert len({watch.threshold for watch in watches if watch.severity != PAGE}) == 1


def test_every_gate_and_every_guarded_metric_has_an_alarm():
    watches = {watch.alert: watch for watch in plan(PRESETS["default"], METRICS)}
    pages = {alert for alert, watch in watches.items() if watch.severity == PAGE}
    golden = ("answer_precision", "citation_hit_rate", "under_refusal_rate", "over_refusal_rate", "hit_rate")
    free = ("refusal_like_rate", "compliance", "citation_scope", "coverage", "empty_retrieval_rate", "error_rate")
    flipped = ("answer_precision", "over_refusal_rate", "under_refusal_rate")
    assert pages == {
        *(gate.name for gate in PRESETS["default"]),
        *(f"{name}:baseline" for name in golden),
        *(f"{name}:flipped" for name in flipped),
    }
    assert watches.keys() - pages == {
        *(f"{name}:{what}" for name in golden for what in ("look", "paired")),
        *(f"{name}:look" for name in (*free, "refusal_rate", "latency")),
        "refusal_rate:look-low",
    }
    assert watches["answer_precision"].threshold == len(pages) * MONTH
    assert watches["latency:look"].threshold == (len(watches) - len(pages)) * DAY / 4


def engine_of(settings):
    return AlarmEngine(settings, ScoreTable(settings.build_metrics()))


def thresholds(alarms, pipeline):
    return {rule.severity: rule.threshold for rule in alarms.of(pipeline).rules.values()}


BUDGET = "[alarms]\nfalse_pages_per_30d = 0.5\nlooks_per_day = 2.0\n"
PAGES = 16 * MONTH / 0.5
"""The threshold of a pipeline that has the whole budget."""


def test_configured_pipelines_have_equal_parts_and_all_others_share_one(configured):
    """How many pipelines nobody named will appear, nobody knows."""
    pipelines = "[pipelines.a]\n[pipelines.b]\n[pipelines.c.alarms]\nlooks_per_day = 8.0\n"
    alarms = engine_of(configured(BUDGET + pipelines))
    assert [thresholds(alarms, name)[PAGE] for name in "abc"] == [4 * PAGES] * 3
    assert thresholds(alarms, "c")[LOOK] == thresholds(alarms, "a")[LOOK] / 4
    assert thresholds(alarms, "unheard of")[PAGE] == 4 * 2 * PAGES
    assert thresholds(alarms, "another")[PAGE] == 4 * 6 * PAGES


def test_whatever_pipelines_come_the_budget_is_not_exceeded_and_no_threshold_moves(configured):
    """The parts of the places add up to less than one, however many there are."""
    alarms, names = engine_of(configured(BUDGET)), [f"p{number}" for number in range(50)]
    found = [thresholds(alarms, name)[PAGE] for name in names]
    assert found[:3] == [2 * PAGES, 6 * PAGES, 12 * PAGES]
    assert sum(PAGES / threshold for threshold in found) < 1
    assert [thresholds(alarms, name)[PAGE] for name in names] == found


def test_a_place_is_given_back_and_taken_by_the_next(configured):
    """And is the same one after a restart, whatever was removed before it."""
    settings = configured(BUDGET)
    alarms = engine_of(settings)
    for name in ("a", "b", "c"):
        alarms.of(name)
    alarms.give_up("a", 0.0)
    restored = engine_of(settings)
    restored.restore(alarms.state)
    for engine in (alarms, restored):
        assert [engine.of(name).state.place for name in ("b", "c", "d", "e")] == [2, 3, 1, 4]


def test_pipelines_that_had_no_place_get_one_each(configured):
    settings = configured(BUDGET + "[pipelines.shop]\n")
    alarms = engine_of(settings)
    for name in ("shop", "b", "a"):
        alarms.of(name)
    saved = alarms.state
    for state in saved.pipelines.values():
        state.place = 0
    restored = engine_of(settings)
    restored.restore(saved)
    assert {name: restored.of(name).state.place for name in ("shop", "a", "b")} == {"shop": 0, "a": 1, "b": 2}


def test_a_pipeline_that_is_configured_later_leaves_its_place(configured):
    alarms = engine_of(configured(BUDGET))
    for name in ("a", "b"):
        alarms.of(name)
    restored = engine_of(configured(BUDGET + "[pipelines.a]\n"))
    restored.restore(alarms.state)
    assert [restored.of(name).state.place for name in ("a", "b", "c")] == [0, 2, 1]


@pytest.mark.parametrize("looks", [1_000, 27_360, 27_361, 1e9])
def test_the_most_generous_budget_breaks_nothing(configured, looks):
    """More than one look a minute from all nineteen: evidence is still between 0 and 1, and can be read."""
    world = gated(configured, f"[alarms]\nlooks_per_day = {looks}\n")
    world.run(3)
    assert all(0 <= state.evidence <= 1 for state in world.alarms.states())


def test_a_declared_gate_is_never_lost():
    """Whatever it is called in Python: this one has the name of the look on the same metric, and is a page."""
    gate = Gate("compliance:look", "compliance", 0.98, "at_least")
    watches = {watch.alert: watch for watch in plan([gate], build())}
    assert (watches["compliance:look"].severity, watches["compliance:look"].kind) == (PAGE, "gate")
    assert watches["compliance:look:own"].kind == "baseline"
