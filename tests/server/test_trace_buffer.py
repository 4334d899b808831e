"""Traces wait for the rest of their spans: when they are complete, and what happens to what is too much."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from ragmon.ingest.spans.span import Span
from ragmon.ingest.trace_buffer import LATE, TOO_MANY, TWICE
from ragmon.stream.assembler import AssemblyLimits, JournalledTraceBuffer

LIMITS = AssemblyLimits(idle=5.0, rootless=60.0, age=600.0, spans=4, traces=10, size=1000)


@dataclass
class Piece:
    trace_id: bytes
    span_id: bytes
    is_root: bool = False
    parent_id: bytes = b""
    end_ns: int = 0
    service: str | None = None
    build: str | None = None

    def span(self):
        return Span("", "", None, "", 0, 0, {"input.value": "Is it?"})


def due(room, now):
    return [(trace_id, len(waiting.spans), waiting.complete) for trace_id, waiting in room.due(now)]


def test_a_trace_with_its_root_is_complete_when_nothing_came_for_a_while():
    room = JournalledTraceBuffer(LIMITS)
    room.add([Piece(b"t", b"1"), Piece(b"t", b"2", is_root=True)], 1, 100.0, 10)
    room.add([Piece(b"t", b"3")], 2, 103.0, 10)
    assert due(room, 107.9) == []
    assert due(room, 108.0) == [(b"t", 3, True)]
    assert (room.size, room.traces) == (0, {})


def test_a_root_that_comes_late_makes_a_trace_complete_sooner():
    room = JournalledTraceBuffer(LIMITS)
    room.add([Piece(b"t", b"1")], 1, 100.0, 10)
    assert due(room, 130.0) == []
    room.add([Piece(b"t", b"2", is_root=True)], 2, 130.0, 10)
    assert due(room, 135.0) == [(b"t", 2, True)]


def test_a_trace_whose_root_never_comes_is_taken_as_it_is():
    room = JournalledTraceBuffer(LIMITS)
    room.add([Piece(b"t", b"1")], 1, 100.0, 10)
    assert due(room, 159.9) == []
    assert due(room, 160.0) == [(b"t", 1, True)]


def test_a_trace_that_never_rests_ends_at_its_age():
    room = JournalledTraceBuffer(AssemblyLimits(idle=5.0, age=20.0))
    for second in range(0, 20, 4):
        room.add([Piece(b"t", bytes([second]), is_root=second == 0)], second, 100.0 + second, 1)
        assert due(room, 100.0 + second) == []
    assert due(room, 120.0) == [(b"t", 5, False)]


def test_a_trace_taken_before_it_came_to_rest_may_lack_spans():
    """For want of room, at its age, or because all that waits is taken."""
    room = JournalledTraceBuffer(AssemblyLimits(traces=1))
    room.add([Piece(b"a", b"1"), Piece(b"b", b"2", is_root=True)], 1, 0.0, 1)
    assert due(room, 0.2) == [(b"a", 1, False)]
    assert [waiting.complete for _, waiting in room.due(0.2, everything=True)] == [False]


def test_a_span_that_comes_twice_and_one_too_many_are_counted():
    room = JournalledTraceBuffer(LIMITS)
    found = room.add([Piece(b"t", bytes([n])) for n in (1, 1, 2, 3, 4, 5)], 1, 100.0, 10)
    assert found == Counter(new=1, **{TWICE: 1, TOO_MANY: 1})
    room.add([Piece(b"t", b"root", is_root=True)], 1, 100.0, 10)
    assert due(room, 200.0) == [(b"t", 5, False)]
    assert LATE not in found


def test_past_a_cap_those_that_wait_longest_are_taken_first():
    room = JournalledTraceBuffer(LIMITS)
    for n in range(12):
        room.add([Piece(bytes([n]), b"1", is_root=True)], n, 100.0 + n / 100, 10)
    assert [trace_id for trace_id, *_ in due(room, 101.0)] == [bytes([0]), bytes([1])]
    room.add([Piece(bytes([n]), b"2") for n in range(2, 12)], 99, 102.0, 950)
    room.add([Piece(b"last", b"1")], 100, 102.0, 90)
    assert len(due(room, 102.0)) >= 1, "a request counts as a whole until the last trace in it is taken"
    assert room.size <= LIMITS.size


def test_a_request_is_let_go_when_its_last_trace_is_done():
    room = JournalledTraceBuffer(LIMITS)
    room.add([Piece(b"a", b"1", is_root=True), Piece(b"b", b"1", is_root=True)], 7, 100.0, 10)
    room.add([Piece(b"b", b"2")], 8, 104.0, 10)
    ((_, first),) = room.due(105.0)
    assert room.release(first) == []
    ((_, second),) = room.due(110.0)
    assert sorted(room.release(second)) == [7, 8]


pieces = st.builds(Piece, st.sampled_from([b"a", b"b", b"c"]), st.binary(min_size=1, max_size=1), st.booleans())


@given(st.lists(st.tuples(st.lists(pieces, max_size=4), st.floats(0, 40)), max_size=30))
def test_every_span_is_handed_out_once_or_counted(requests):
    """Whatever comes when, and every request is let go in the end."""
    room, now, counted, out, released = JournalledTraceBuffer(LIMITS), 0.0, Counter(), 0, set()
    for number, (sent, passed) in enumerate(requests):
        now += passed
        for _, waiting in room.due(now):
            out += len(waiting.spans)
            released.update(room.release(waiting))
        counted += room.add(sent, number, now, 10)
    for _, waiting in room.due(now, everything=True):
        out += len(waiting.spans)
        released.update(room.release(waiting))
    assert out + counted[TWICE] + counted[TOO_MANY] == sum(len(sent) for sent, _ in requests)
    assert room.size == 0
    assert released <= set(range(len(requests)))
    assert not room._held
