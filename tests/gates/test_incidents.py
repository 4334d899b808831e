"""Alarms that fire together are one incident: from when things went wrong until all of them are silent."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.export.families import label
from ragmon.export.text import incident_text
from ragmon.gates.incidents import APART, ASKED, JOIN, Cause, Incident, IncidentLog, as_incident, trait_of
from ragmon.gates.suspects import TRAITS
from ragmon.monitor.embedded import split

NOON = 1_769_860_800.0
MINUTE = 60.0


def fires(minute, alert, since, *, page=False, pipeline="support", proof=""):
    severity, metric = "page" if page else "look", alert.partition(":")[0]
    began = None if since is None else NOON + since * MINUTE
    return AlarmTransition(NOON + minute * MINUTE, pipeline, alert, metric, severity, "firing", began, proof)


def ends(minute, alert, pipeline="support"):
    return AlarmTransition(NOON + minute * MINUTE, pipeline, alert, alert.partition(":")[0], "look", "resolved")


def told(*edges):
    """The transitions of incidents: minute, incident, severity, state."""
    seen = IncidentLog().see(edges)
    return [((edge.ts - NOON) / MINUTE, edge.incident, edge.severity, edge.state) for edge in seen]


def test_an_incident_begins_where_its_first_alarm_says_and_ends_with_its_last():
    edges = [
        fires(9, "coverage:look", 2),
        fires(12, "hit_rate:look", 3),
        ends(30, "coverage:look"),
        ends(40, "hit_rate:look"),
    ]
    log = IncidentLog()
    first, last = log.see(edges)
    assert (first.began, first.state, first.metrics) == (NOON + 2 * MINUTE, "firing", ("coverage",))
    assert (last.ts, last.state, last.metrics) == (NOON + 40 * MINUTE, "resolved", ("coverage", "hit_rate"))
    assert log.incidents[0].name == "support-20260131T1202"


def test_it_is_confirmed_by_the_first_alarm_that_pages():
    name = "support-20260131T1202"
    assert told(
        fires(9, "coverage:look", 2), fires(12, "coverage", 2, page=True), fires(13, "hit_rate", 2, page=True)
    ) == [
        (9, name, "suspected", "firing"),
        (12, name, "confirmed", "firing"),
    ]
    assert told(fires(9, "coverage", 2, page=True)) == [(9, name, "confirmed", "firing")]


def test_the_alarm_that_confirms_it_tells_most_of_it():
    log = IncidentLog()
    edges = [fires(9, "coverage:look", 2), fires(12, "hit_rate", 2, page=True), fires(13, "coverage", 2, page=True)]
    assert [log.incidents[-1].alarm for edge in edges for _ in [list(log.see([edge]))]] == [
        "coverage:look",
        "hit_rate",
        "hit_rate",
    ]


def test_an_alarm_that_fires_anew_while_others_fire_goes_on_with_the_incident():
    edges = [fires(9, "coverage:look", 2), fires(10, "hit_rate:look", 2), ends(20, "coverage:look")]
    edges += [fires(25, "coverage:look", 21), ends(40, "coverage:look"), ends(41, "hit_rate:look")]
    assert [state for *_, state in told(*edges)] == ["firing", "resolved"]


def test_what_begins_long_after_the_newest_alarm_is_another_incident():
    """The first one may not be over: its gates stay red as long as their windows hold it."""
    later = 10 + JOIN / MINUTE + 1
    first, second, *ended = told(
        *(fires(10, "hit_rate", 2, page=True), fires(later + 5, "latency:look", later)),
        *(ends(later + 30, "hit_rate"), ends(later + 40, "latency:look")),
    )
    assert (first[1], second[1:]) == ("support-20260131T1202", ("support-20260131T1241", "suspected", "firing"))
    assert [(incident, state) for _, incident, _, state in ended] == [(first[1], "resolved"), (second[1], "resolved")]
    assert len(told(fires(10, "hit_rate", 2), fires(99, "latency:look", later - 1))) == 1


def test_an_incident_keeps_what_its_alarms_fired_for_when_they_have_ended():
    log = IncidentLog()
    first = [fires(9, "coverage:look", 2, proof="60 % of 30"), fires(10, "hit_rate", 2, page=True, proof="40 % of 50")]
    again = [ends(20, "coverage:look"), fires(25, "coverage:look", 21, proof="50 % of 40")]
    list(log.see([*first, *again, ends(40, "coverage:look"), ends(41, "hit_rate")]))
    (incident,) = log.incidents
    assert incident.ended is not None
    assert incident.proofs == {"coverage:look": "50 % of 40", "hit_rate": "40 % of 50"}
    assert as_incident(incident)["proofs"] == incident.proofs


def test_an_alarm_on_drift_tells_of_no_fault():
    assert told(fires(9, "answer_length:drift", None), ends(90, "answer_length:drift")) == []


def test_pipelines_have_incidents_of_their_own():
    assert len(told(fires(9, "coverage:look", 2), fires(9, "coverage:look", 2, pipeline="sales"))) == 2


def test_incidents_that_begin_in_the_same_minute_have_names_of_their_own():
    edges = [fires(9, "coverage:look", 2), ends(10, "coverage:look"), fires(12, "coverage:look", 2)]
    assert [incident for _, incident, *_ in told(*edges)][::2] == ["support-20260131T1202", "support-20260131T1202-2"]


def test_a_name_is_that_of_one_incident_when_the_first_of_its_minute_is_forgotten():
    log = IncidentLog()
    for minute in (9, 12):
        list(log.see([fires(minute, "coverage:look", 2), ends(minute + 1, "coverage:look")]))
    del log.incidents[0]
    list(log.see([fires(15, "coverage:look", 2)]))
    assert len({incident.name for incident in log.incidents}) == 2


@pytest.mark.parametrize("pipeline", ["team/rag", "a\nb\x1b[31m", "p" * 5000, "\ud800", "ünï 'code\"", ".."])
def test_its_name_fits_a_label_and_an_address_whatever_the_pipeline_is_called(pipeline):
    log = IncidentLog()
    list(log.see([fires(9, "coverage:look", 2, pipeline=pipeline)]))
    name = log.incidents[0].name
    assert label(name) == name
    assert log.alarms_of("default", name) == [(pipeline, "coverage:look")]


def test_the_name_of_an_incident_of_a_pipeline_with_a_slash_may_come_split_as_that_of_an_alarm():
    log = IncidentLog()
    list(log.see([fires(9, "coverage:look", 2, pipeline="team/rag")]))
    alert, pipeline = split(log.incidents[0].name)
    assert log.alarms_of(pipeline, alert) == [("team/rag", "coverage:look")]


def test_the_end_of_an_alarm_that_fired_before_tells_nothing():
    assert told(ends(9, "coverage:look")) == []


@given(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "c"]), st.booleans(), st.integers(0, 90), st.integers(0, 60)), max_size=30
    )
)
def test_every_incident_ends_when_its_alarms_do_and_none_is_told_twice(drawn):
    edges, now, firing = [], 0, set()
    for alert, page, wait, back in drawn:
        now += wait
        edges.append(ends(now, alert) if alert in firing else fires(now, alert, now - back, page=page))
        firing ^= {alert}
    edges += [ends(now + 1, alert) for alert in firing]
    log = IncidentLog()
    seen = list(log.see(edges))
    assert len(seen) == len(set(seen))
    for incident in log.incidents:
        states = [edge.state for edge in seen if edge.incident == incident.name]
        assert states in (["firing", "resolved"], ["firing", "firing", "resolved"])
        assert incident.ended is not None
        assert not incident.firing
    assert sum(edge.state == "resolved" for edge in seen) == len(log.incidents)


REFUSED, MISSED = "refused what can be answered", "retrieved no gold document"


def cause(minute, trait, *, latest=None):
    """A cause that began at a minute, known to lie between it and `latest`."""
    began, end = NOON + minute * MINUTE, NOON + (minute if latest is None else latest) * MINUTE
    return Cause(began, began, end, trait, 0.0, 0.5, "answer_precision", 1.0, 0.5, of_gold=True, suspects=())


def begun(edges, causes):
    """The incidents of some transitions, where alarms have these causes: beginning and trait."""
    log = IncidentLog(lambda pipeline, alert, ts, since: causes[alert])
    list(log.see(edges))
    return [((incident.began - NOON) / MINUTE, incident.cause.trait) for incident in log.incidents]


def test_an_alarm_whose_cause_is_another_fault_begins_another_incident():
    edges = [fires(6, "hit_rate", 2, page=True), fires(14, "over_refusal_rate", 11, page=True)]
    later = 2 + APART / MINUTE + 1
    assert begun(edges, {"hit_rate": cause(2, MISSED), "over_refusal_rate": cause(later, REFUSED)}) == [
        (2, MISSED),
        (11, REFUSED),
    ]


def test_causes_that_began_together_or_are_of_one_kind_are_one_fault():
    edges = [fires(6, "hit_rate", 2, page=True), fires(14, "over_refusal_rate", 11, page=True)]
    one = [(2, MISSED)]
    assert begun(edges, {"hit_rate": cause(2, MISSED), "over_refusal_rate": cause(3, REFUSED)}) == one
    assert begun(edges, {"hit_rate": cause(2, MISSED), "over_refusal_rate": cause(11, MISSED)}) == one
    assert begun(edges, {"hit_rate": cause(2, MISSED), "over_refusal_rate": cause(11, "")}) == one
    assert begun(edges, {"hit_rate": cause(2, MISSED, latest=10), "over_refusal_rate": cause(11, REFUSED)}) == one


def test_a_third_alarm_joins_the_incident_of_its_cause():
    causes = {"hit_rate": cause(2, MISSED), "over_refusal_rate": cause(11, REFUSED), "recall@5": cause(2, MISSED)}
    edges = [fires(6, "hit_rate", 2, page=True), fires(14, "over_refusal_rate", 11, page=True)]
    log = IncidentLog(lambda pipeline, alert, ts, since: causes[alert])
    list(log.see([*edges, fires(15, "recall@5", 3)]))
    assert [incident.alarms for incident in log.incidents] == [("hit_rate", "recall@5"), ("over_refusal_rate",)]


def test_a_look_at_what_is_over_changes_no_cause():
    """While an alarm still waits for the proof of recovery, the newest change of its metric may be another one."""
    found = {"now": cause(2, MISSED)}
    log = IncidentLog(lambda pipeline, alert, ts, since: found["now"])
    list(log.see([fires(6, "hit_rate", 2, page=True)]))
    found["now"] = cause(60, "")
    log.look(NOON + 90 * MINUTE)
    assert log.incidents[0].cause == cause(2, MISSED)


def test_a_cause_that_is_not_known_yet_is_asked_for_again_ever_less_often():
    asked = []

    def diagnose(pipeline, alert, ts, since):
        asked.append((ts - NOON) / MINUTE)
        return cause(2, "")

    log = IncidentLog(diagnose)
    list(log.see([fires(6, "hit_rate", 2, page=True)]))
    for minute in range(6, 60):
        log.look(NOON + minute * MINUTE)
    assert asked == [6, 7, 8, 10, 14, 22, 38]


def test_in_an_outage_of_many_pipelines_a_minute_asks_for_some_causes_and_later_ones_for_the_others():
    asked = Counter()

    def diagnose(pipeline, alert, ts, since):
        asked[ts] += 1
        return cause(2, MISSED)

    log = IncidentLog(diagnose)
    edges = [fires(6, "hit_rate", 2, page=True, pipeline=f"p{n}") for n in range(3 * ASKED)]
    assert len(list(log.see(edges))) == 3 * ASKED
    for second in range(6 * 60, 12 * 60, 10):
        log.look(NOON + second // 60 * MINUTE)
    assert max(asked.values()) == ASKED
    assert all(incident.cause is not None for incident in log.incidents)


def test_alarms_that_a_new_configuration_lacks_end_with_it():
    log = IncidentLog()
    list(log.see([fires(6, "hit_rate", 2, page=True), fires(7, "coverage", 2, page=True)]))
    assert list(log.keep({("support", "coverage")}, NOON + 8 * MINUTE)) == []
    assert (log.incidents[0].firing, log.incidents[0].ended) == (("coverage",), None)
    (told,) = log.keep(set(), NOON + 9 * MINUTE)
    assert (told.ts, told.state) == (NOON + 9 * MINUTE, "resolved")
    assert log.incidents[0].ended == NOON + 9 * MINUTE


@pytest.mark.parametrize("trait", ["", *TRAITS])
def test_every_trait_has_words(trait):
    incident = Incident("support-1", "support", NOON, "a_gate", metrics=("mrr",), cause=cause(2, trait))
    assert incident_text(incident, NOON + 600).startswith("support: since 12:02 UTC ")


def test_the_sentence_says_whose_since_when_what_why_and_how_many():
    found = msgspec.structs.replace(cause(2, REFUSED), suspects=(("index_hash", "b721"), ("build", "v2")))
    incident = Incident("support-1", "support", NOON, "over_refusal_rate", metrics=("over_refusal_rate",), cause=found)
    sentence = "support: since 12:02 UTC answerable questions are refused (index b721), 50 % of gold questions"
    assert incident_text(incident, NOON + 600) == sentence
    incident.ended = NOON + 900
    assert incident_text(incident, NOON + 86_400) == sentence.replace(
        "since 12:02 UTC", "2026-01-31 12:02 to 2026-01-31 12:15 UTC"
    )


def test_without_a_trait_it_is_what_the_alarm_counts():
    incident = Incident("support-1", "support", NOON, "refusals", metrics=("over_refusal_rate",), cause=cause(2, ""))
    assert trait_of(incident) == REFUSED
