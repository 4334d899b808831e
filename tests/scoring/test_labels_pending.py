"""Labels that wait for their traces share the room: a flood of some drives out nobody else's."""

from __future__ import annotations

from contextlib import contextmanager

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from ragmon.core.record import Label
from ragmon.ingest.receiver import Encoding
from ragmon.scoring import ratings
from ragmon.scoring.ratings import EVICTED, JOINED, SHARE, LabelStore, PendingLabels
from ragmon.server.pending import decode_labels, decode_traces
from tests.support.manual_writer import ManualWriter
from tests.support.saved import saved
from tests.support.serving import asked, replayed, whole

MOST = 80
"""Labels that may wait in these tests."""


def label(number, rater="ada"):
    return Label(trace_id=f"{number + 1:032x}", rater=rater, correct=True)


@contextmanager
def limits(most=MOST, largest=10**9):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ratings, "MAX_ANSWERS", most)
        patch.setattr(ratings, "MAX_BYTES", largest)
        yield PendingLabels()


def held(room):
    return [(int(one.label.trace_id, 16) - 1, one.label.rater) for one in room.by_number.values()]


def numbers(room):
    return [number for number, _ in held(room)]


def test_whoever_floods_the_room_makes_room_with_their_own():
    with limits() as room:
        for number in range(5):
            assert room.put(label(number, "ada"), 0.0) == 0
        left = sum(room.put(label(number, "flood"), 1.0) for number in range(5, 5 + 10 * MOST))
    assert left == 9 * MOST + 5
    assert numbers(room)[:5] == [0, 1, 2, 3, 4]
    assert numbers(room)[5:] == list(range(10 * MOST + 5 - (MOST - 5), 10 * MOST + 5)), "the newest of the flood stay"


def test_a_flood_under_many_names_makes_room_with_its_oldest():
    with limits() as room:
        for number in range(10 * MOST):
            room.put(label(number, f"flood {number}"), float(number))
        room.put(label(-1, "ada"), 900.0)
    assert numbers(room) == [*range(9 * MOST + 1, 10 * MOST), -1]


def test_bytes_are_shared_as_numbers_are():
    room = PendingLabels()
    room.put(label(0, "ada"), 0.0)
    with limits(most=10**9, largest=MOST * room.by_number[0].size):
        for number in range(1, 10 * MOST):
            room.put(label(number, "bob"), 1.0)
    assert (numbers(room)[0], len(room)) == (0, MOST)


@given(st.lists(st.tuples(st.integers(0, 30), st.sampled_from("abcdefghij"), st.booleans()), max_size=400))
def test_nobody_within_their_share_is_driven_out_by_one_who_is_not(steps):
    """Held against a list that is searched anew each time, and against itself after it was saved and loaded."""
    plain = list[tuple[int, str]]()
    with limits() as room:
        for time, (number, rater, taken) in enumerate(steps):
            if taken:
                room.take(f"{number + 1:032x}")
                plain = [one for one in plain if one[0] != number]
                continue
            left = room.put(label(number, rater), float(time))
            plain.append((number, rater))
            if len(plain) > MOST:
                count = {name: sum(of == name for _, of in plain) for _, name in plain}
                over = [name for name, n in count.items() if n * SHARE > MOST]
                most = max(over, key=lambda name: (count[name], name)) if over else None
                plain.pop(next(place for place, (_, of) in enumerate(plain) if most in (None, of)))
                assert left == 1
            room = saved(room) if time % 7 == 0 else room  # noqa: PLW2901 - the same labels
        assert held(room) == plain


@pytest.mark.slow
def test_of_140_000_labels_on_no_trace_one_that_was_meant_joins_its_answer_when_that_comes(tmp_path):
    """Live, and in a replay of the journal."""
    meant = {"trace_id": f"{1:032x}", "rater": "ada", "correct": True}
    with ManualWriter(tmp_path) as writer:
        writer.take(decode_labels([meant]))
        for start in range(2, 140_002, 10_000):
            told = [{"trace_id": f"{n:032x}", "rater": "flood", "correct": False} for n in range(start, start + 10_000)]
            writer.take(decode_labels(told))
        writer.take(decode_traces(whole([asked(0, ts=writer.time.now)]), Encoding.PROTOBUF))
        book = writer.server_state.engine.labels.store
        assert book.results[JOINED] == 1
        assert book.results.total() + book.pending == 140_001
        assert book.results[EVICTED] > 0
        digest = writer.server_state.engine.scorer.state.digest()
    assert replayed(tmp_path) == digest


def test_a_book_that_was_saved_makes_room_as_if_it_had_not_been(monkeypatch):
    monkeypatch.setattr("ragmon.scoring.ratings.MAX_ANSWERS", MOST)
    one, other = LabelStore(), LabelStore()
    for number in range(3 * MOST):
        for book in (one, other):
            book.add_pending(label(number // 2, "ab"[number % 2] if number % 5 else f"r{number}"), float(number))
        if number % 10 == 0:
            other = saved(other)
    assert one == other
    assert msgspec.msgpack.encode(one) == msgspec.msgpack.encode(other)


@pytest.mark.parametrize("trace_id", ["../../x", "5a1c", "", "g" * 32, "0" * 31, "0" * 33, " " + "0" * 31, "٣" * 32])
def test_a_label_that_names_no_trace_is_rejected_and_told_what_a_trace_id_is(trace_id):
    request = decode_labels([{"trace_id": trace_id, "rater": "ada", "correct": True}])
    assert (request.entries, request.counts.labels) == ([], {"rejected": 1})
    assert request.result.rejected == 1
    if trace_id:
        assert "32 hex digits" in request.result.message
        assert repr(trace_id) in request.result.message


def test_a_trace_id_may_be_written_in_capitals():
    (found,) = decode_labels([{"trace_id": "AB" * 16, "rater": "ada", "correct": True}]).entries
    assert found.trace_id == "ab" * 16
