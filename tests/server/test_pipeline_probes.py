"""Two records of one probe are one request, whichever comes first, and both are accounted for."""

from __future__ import annotations

import msgspec
import pytest

from ragmon.core.constants import PROBE_TAG
from ragmon.core.record import Answer, Record, Sampling, TextFacts
from ragmon.server.erasure import erase
from ragmon.server.pending import is_from_prober, join_reply
from ragmon.server.state import replay
from tests.support.command_line import gold, lines
from tests.support.manual_writer import ManualWriter, body
from tests.support.otlp_requests import of_records, with_ids
from tests.support.serving import BEGIN, asked, foreign, journalled, whole

TRACE = f"{7:032x}"
CONFIG = '[pipelines.support]\n[gold.support]\npath = "gold.jsonl"\n'
WAIT = 10.0


def reply(trace_id=TRACE, **fields):
    """What a prober got."""
    told = {"v": 1, "trace_id": trace_id, "ts": BEGIN, "pipeline": "support", "source": "probe", "qid": "a1"}
    answer = {"q": "What is 1?", "answer_json": Answer("that is right", ["d1"]), "tags": {PROBE_TAG: "support"}}
    return Record(**{**told, **answer, "sampling": Sampling(), **fields})


def own(trace_id=TRACE, **fields):
    """What the application sends of it."""
    told = {"ts": BEGIN, "retrieved": ["d1", "d2"], "claim": None, "citations": None, "index_hash": "i7"}
    return asked(6, trace_id=trace_id, **{**told, **fields})


@pytest.fixture
def manual(tmp_path):
    lines(tmp_path / "gold.jsonl", gold())
    with ManualWriter(tmp_path, CONFIG) as found:
        yield found


def span(record, number):
    """An export of one record, under a span id of its own."""
    return with_ids(of_records([record]), [f"{number:016x}"])


def counted(manual):
    """Received, scored, duplicate; and nothing that cannot be accounted for, here and in a replay of the journal."""
    books = manual.books
    assert books.residual == 0
    with_journal = replay(manual.settings, manual.writer.journal)
    assert with_journal.engine.scorer.state.digest() == manual.server_state.engine.scorer.state.digest()
    return books.received, books.scored, books.duplicate


def sources(manual):
    """How many records of each source were counted."""
    found = {}
    for key, series in manual.server_state.engine.scorer.state.series.items():
        n = sum(row.count for row in (*series.fresh.values(), *series.folded.values()))
        found[key.source] = found.get(key.source, 0) + n
    return found


def test_a_reply_nobody_else_tells_of_counts_by_itself_after_a_while(manual):
    manual.writer.reply(reply(), WAIT)
    manual.tick(WAIT - 1)
    assert counted(manual) == (0, 0, 0)
    manual.tick(2)
    assert (counted(manual), sources(manual)) == ((1, 1, 0), {"probe": 1})
    manual.tick(100)
    assert counted(manual) == (1, 1, 0)


@pytest.mark.parametrize("source", ["live", "probe"])
def test_the_applications_own_record_counts_whatever_it_takes_the_request_for(manual, source):
    manual.writer.reply(reply(), WAIT)
    manual.send(whole([own(source=source)]))
    assert (counted(manual), sources(manual)) == ((2, 1, 1), {"probe": 1})
    manual.tick(100)
    assert counted(manual) == (2, 1, 1)


def test_a_request_that_is_under_way_is_no_users(manual):
    manual.writer.reply(Record(trace_id=TRACE, source="probe", pipeline="support", qid="a1"), 60.0, arrived=False)
    manual.send(whole([own()]))
    assert (counted(manual), sources(manual), manual.books.pending) == ((1, 0, 0), {}, 1)
    manual.writer.reply(reply(), WAIT)
    manual.tick()
    assert (counted(manual), sources(manual), manual.books.pending) == ((2, 1, 1), {"probe": 1}, 0)
    assert manual.server_state.counts.probed == {"joined": 1}


@pytest.mark.parametrize("after", range(3))
def test_a_probe_is_one_request_where_the_journal_is_counted_again_meanwhile(manual, after):
    """After the question is under way, after the application told of it, after the reply came."""
    begun = Record(trace_id=TRACE, source="probe", pipeline="support", qid="a1")
    steps = [
        lambda: manual.writer.reply(begun, 60.0, arrived=False),
        lambda: manual.send(whole([own()])),
        lambda: manual.writer.reply(reply(), WAIT),
    ]
    for step in steps:
        step()
        if step is steps[after]:
            manual.writer._recount()
    manual.tick(1)
    assert (counted(manual), sources(manual), manual.books.pending) == ((2, 1, 1), {"probe": 1}, 0)
    assert manual.server_state.counts.probed == {"joined": 1}


class TestTheApplicationTellsFirst:
    """Its record may come while the question is under way: the reply holds the text, and is waited for."""

    @pytest.fixture
    def asked_first(self, manual):
        """A question is under way, and the application has told of it, without a word of text."""
        begun = Record(trace_id=TRACE, source="probe", pipeline="support", qid="a1")
        manual.writer.reply(begun, 60.0, arrived=False)
        manual.send(whole([own(q=None)]))
        return manual

    def precision(self, manual):
        """Samples of answer precision among probes."""
        found = [
            one
            for one in manual.server_state.engine.gates.snapshot(manual.time.now).series
            if one.gold and one.window == "all"
        ]
        return [one.metrics["answer_precision"].n for one in found if one.source == "probe"]

    def test_the_reply_completes_it_as_it_does_where_it_comes_first(self, asked_first):
        asked_first.writer.reply(reply(), WAIT)
        asked_first.tick()
        assert (counted(asked_first), self.precision(asked_first)) == ((2, 1, 1), [1])
        asked_first.tick(100)
        assert counted(asked_first) == (2, 1, 1)

    def test_without_a_reply_it_is_scored_when_the_wait_runs_out_and_counted(self, asked_first):
        asked_first.tick(59)
        assert counted(asked_first) == (1, 0, 0)
        asked_first.tick(2)
        assert (counted(asked_first), sources(asked_first)) == ((1, 1, 0), {"probe": 1})
        assert asked_first.server_state.counts.probed == {"no_reply": 1}
        asked_first.writer.reply(reply(), WAIT)
        asked_first.tick(WAIT + 1)
        assert counted(asked_first) == (2, 1, 1)

    def test_what_it_tells_again_meanwhile_is_there_already(self, asked_first):
        asked_first.send(whole([own()]), whole([own(q="another call in it")]))
        assert counted(asked_first) == (3, 0, 2)
        asked_first.tick(61)
        asked_first.send(whole([own()]))
        assert (counted(asked_first), sources(asked_first)) == ((4, 1, 3), {"probe": 1})

    def test_a_server_that_is_killed_loses_the_reply_and_not_the_record(self, asked_first):
        asked_first.again()
        assert asked_first.books.pending == 1
        assert asked_first.verified().stages["ingest"].pending == 1
        asked_first.tick()
        assert (counted(asked_first), sources(asked_first)) == ((1, 1, 0), {"probe": 1})
        asked_first.again()
        asked_first.tick()
        assert (counted(asked_first), asked_first.verified().failed) == ((1, 1, 0), ())

    def test_a_server_that_is_stopped_waits_for_nothing(self, asked_first):
        asked_first.writer.open_traces.replies.hurried = True
        asked_first.tick()
        assert counted(asked_first) == (1, 1, 0)

    @pytest.mark.parametrize("killed", [False, True])
    def test_it_can_be_forgotten_while_it_waits(self, asked_first, killed):
        assert asked_first.forget(TRACE).spans == 1
        if killed:
            asked_first.again()
        asked_first.tick(61)
        assert (counted(asked_first), asked_first.server_state.counts.ignored) == ((1, 0, 0), {"forgotten": 1})
        asked_first.again()
        asked_first.tick()
        assert counted(asked_first) == (1, 0, 0)

    def test_it_is_found_by_its_tag_while_it_waits(self, manual):
        manual.writer.reply(Record(trace_id=TRACE, source="probe"), 60.0, arrived=False)
        manual.send(whole([own(tags={"user": "u1"})]))
        assert erase(manual.folder / "state", tag=("user", "u1")).spans == 1
        manual.tick(61)
        assert (counted(manual), manual.server_state.counts.ignored) == ((1, 0, 0), {"forgotten": 1})

    def test_a_journal_that_was_lost_takes_nothing_with_it(self, asked_first):
        asked_first.damage()
        asked_first.send(body(*foreign(3, at=BEGIN)))
        asked_first.tick(61)
        assert asked_first.server_state.counts.probed == {"no_reply": 1}
        assert asked_first.books.residual == 0

    def test_spans_of_another_instrumentation_wait_as_well(self, manual):
        begun = Record(trace_id=TRACE, source="probe", pipeline="support", qid="a1")
        manual.writer.reply(begun, 60.0, arrived=False)
        manual.send(body(*[one._replace(trace_id=TRACE) for one in foreign(1, at=BEGIN)]))
        manual.tick(5)
        assert (counted(manual), manual.books.pending) == ((1, 0, 0), 1)
        manual.writer.reply(reply(), WAIT)
        manual.tick()
        assert (counted(manual), sources(manual)) == ((2, 1, 1), {"probe": 1})

    def test_a_server_killed_before_it_let_go_of_the_spans_does_not_let_them_wait_a_second_time(self, manual):
        manual.writer.reply(Record(trace_id=TRACE, source="probe", pipeline="support", qid="a1"), 60.0, arrived=False)
        manual.send(body(*[one._replace(trace_id=TRACE) for one in foreign(1, at=BEGIN)]))
        manual.tick(5)
        assert manual.writer.open_traces.released
        manual.again()
        assert (counted(manual), manual.books.pending) == ((1, 0, 0), 1)
        manual.tick(61)
        assert (counted(manual), sources(manual), manual.books.pending) == ((1, 1, 0), {"probe": 1}, 0)


def test_one_that_never_came_back_is_forgotten(manual):
    manual.writer.reply(Record(trace_id=TRACE, source="probe"), 60.0, arrived=False)
    manual.tick(61)
    assert (counted(manual), manual.writer.open_traces.replies._waiting) == ((0, 0, 0), {})


def test_what_the_application_tells_too_late_was_there_already(manual):
    manual.writer.reply(reply(), WAIT)
    manual.tick(WAIT + 1)
    manual.send(whole([own()]))
    assert (counted(manual), sources(manual)) == ((2, 1, 1), {"probe": 1})


def test_so_does_what_it_tells_twice(manual):
    manual.writer.reply(reply(), WAIT)
    manual.send(whole([own(), own(q="another call in it")]), whole([own()]))
    manual.send(whole([own()]))
    assert sources(manual) == {"probe": 1}
    received, scored, duplicate = counted(manual)
    assert (received, scored) == (duplicate + 1, 1)


def test_spans_of_another_instrumentation_are_the_same_request(manual):
    spans = [one._replace(trace_id=TRACE) for one in foreign(1, at=BEGIN)]
    manual.writer.reply(reply(), WAIT)
    manual.send(body(*spans))
    manual.tick(5.0)
    assert (counted(manual), sources(manual)) == ((2, 1, 1), {"probe": 1})
    manual.tick(60)
    assert counted(manual) == (2, 1, 1)


def test_spans_that_come_after_the_reply_counted_belong_to_no_record(manual):
    manual.writer.reply(reply(), 0.0)
    manual.tick(1.0)
    manual.send(body(*[one._replace(trace_id=TRACE) for one in foreign(1)]))
    manual.tick(60)
    assert (counted(manual), sources(manual)) == ((1, 1, 0), {"probe": 1})


def test_a_prober_elsewhere_sends_its_own_and_the_first_of_both_counts(manual):
    for n, order in enumerate((("app", "prober"), ("prober", "app"))):
        trace_id = f"{8 + n:032x}"
        both = {
            "app": msgspec.structs.replace(own(trace_id), source="probe", qid="a1"),
            "prober": reply(trace_id, ts=BEGIN + 30),
        }
        for place, who in enumerate(order):
            manual.send(span(both[who], place + 1))
        assert (counted(manual), sources(manual)) == ((2 + 2 * n, 1 + n, 1 + n), {"probe": 1 + n})


@pytest.mark.parametrize("seconds", [0.0, 3 * 3600.0])
def test_a_server_that_began_anew_in_between_counts_it_once_as_well(manual, seconds):
    manual.send(span(msgspec.structs.replace(own(), source="probe", qid="a1"), 1))
    manual.again(seconds)
    manual.send(span(reply(ts=BEGIN + 30 + seconds), 2))
    assert (counted(manual), sources(manual)) == ((2, 1, 1), {"probe": 1})


def test_users_words_that_look_like_a_probe_make_none(manual):
    manual.send(span(own(q='"source":"probe"', claim='"source":"probe"'), 1))
    manual.again()
    manual.send(span(reply(ts=BEGIN + 30), 2))
    assert sources(manual) == {"live": 1, "probe": 1}


def test_where_the_application_believes_no_prober_elsewhere_it_counts_a_user_and_the_probe_is_not_lost(manual):
    manual.send(span(own(), 1))
    manual.send(span(reply(ts=BEGIN + 30), 2))
    assert (counted(manual), sources(manual)) == ((2, 2, 0), {"live": 1, "probe": 1})


class TestARepliesWaitOutlivesTheServer:
    def test_one_that_waits_when_the_server_is_killed_counts_by_itself_after_a_while(self, manual):
        manual.writer.reply(reply(), WAIT)
        manual.tick(1)
        for _ in range(2):
            manual.again()
            manual.tick(WAIT - 1)
            assert (counted(manual), manual.verified().failed) == ((0, 0, 0), ())
        manual.tick(2)
        assert (counted(manual), sources(manual)) == ((1, 1, 0), {"probe": 1})
        manual.again()
        manual.tick(WAIT + 1)
        assert counted(manual) == (1, 1, 0)

    def test_it_completes_the_applications_record_as_before(self, manual):
        manual.writer.reply(reply(), WAIT)
        manual.send(body(*foreign(3, at=BEGIN)))
        manual.again()
        manual.send(whole([own()]))
        assert manual.server_state.counts.probed == {"joined": 1}
        assert sources(manual)["probe"] == 1
        manual.again()
        manual.tick(100)
        assert (manual.server_state.counts.probed, manual.books.residual) == ({"joined": 1}, 0)

    @pytest.mark.parametrize("killed", [False, True])
    @pytest.mark.parametrize("told", [False, True])
    def test_it_can_be_forgotten_while_it_waits(self, manual, killed, told):
        manual.writer.reply(reply(), WAIT)
        manual.tick(1)
        assert manual.forget(TRACE).spans == 1
        if killed:
            manual.again()
        if told:
            manual.send(whole([own()]))
        manual.tick(WAIT + 1)
        received, scored, _ = counted(manual)
        assert (received, scored) == ((not killed) + told, int(told))
        assert "that is right" not in str(journalled(manual.folder))

    def test_a_journal_that_was_lost_takes_none_with_it(self, manual):
        manual.writer.reply(reply(), WAIT)
        manual.tick(1)
        manual.damage()
        manual.tick(1)
        manual.again()
        manual.tick(WAIT + 1)
        assert counted(manual) == (1, 1, 0)


def test_replies_do_not_fill_the_memory(manual, monkeypatch):
    monkeypatch.setattr("ragmon.server.pending.MAX_REPLIES", 2)
    assert [manual.writer.reply(reply(f"{n:032x}"), WAIT) for n in (1, 2, 3, 2)] == [True, True, False, True]
    manual.tick(WAIT + 1)
    assert counted(manual) == (2, 2, 0)
    assert manual.writer.reply(reply(f"{3:032x}"), WAIT)


def test_probes_an_application_sends_through_itself_in_one_trace_all_count(manual):
    for place in range(3):
        record = msgspec.structs.replace(asked(place, trace_id=TRACE, ts=BEGIN), source="probe", qid=f"a{place}")
        manual.send(span(record, place + 1))
    assert counted(manual) == (3, 3, 0)


def test_nothing_that_came_back_is_lost_when_the_server_stops(manual):
    manual.writer.reply(reply(), WAIT)
    manual.writer.open_traces.replies.hurried = True
    manual.tick()
    assert counted(manual) == (1, 1, 0)


class TestJoined:
    def test_the_reply_says_what_the_application_does_not(self):
        found = join_reply(own(), reply())
        assert (found.qid, found.source, found.retrieved_ids, found.index_hash) == ("a1", "probe", ["d1", "d2"], "i7")
        assert (found.answer_json.claim, found.answer_json.citations) == ("that is right", ["d1"])
        assert is_from_prober(found)

    def test_what_the_application_says_itself_stands(self):
        found = join_reply(own(claim="mine", citations=["d2"]), reply())
        assert (found.answer_json.claim, found.answer_json.citations) == ("mine", ["d2"])

    def test_facts_of_the_claim_come_from_whoever_compared_it_with_the_gold(self):
        compared = TextFacts(gold_version="1", contains_claim=True, answered=True, refused=False)
        blind = TextFacts(answered=True, refused=False, grounded=True)
        told = reply(answer_json=Answer(None, ["d1"]), facts=compared)
        found = join_reply(own(facts=blind), told)
        assert (found.facts.contains_claim, found.facts.gold_version, found.facts.grounded) == (True, "1", True)
        assert join_reply(own(facts=compared), reply(facts=blind)).facts is compared

    def test_a_question_that_failed_on_either_side_failed(self):
        assert join_reply(own(), reply(error="TimeoutError", answer_json=None)).error == "TimeoutError"
        assert join_reply(own(error="KeyError"), reply()).error == "KeyError"

    def test_it_was_drawn_for_certain_whatever_the_application_took_it_for(self):
        audit = Sampling(audit=False, stratum="refusal", p_audit=0.05, p=0.24)
        assert join_reply(own(sampling=audit), reply()).sampling == Sampling(stratum="refusal")


def test_scores_either_side_was_given_are_kept_and_the_applications_come_first():
    told = reply(measures={"judge_a": 0.0, "judge_b": 0.25}, verdicts=[True])
    found = join_reply(Record(trace_id=TRACE, measures={"judge_a": 1.0}), told)
    assert (found.measures, found.verdicts) == ({"judge_a": 1.0, "judge_b": 0.25}, [True])
    assert join_reply(Record(trace_id=TRACE), reply()).measures is None
