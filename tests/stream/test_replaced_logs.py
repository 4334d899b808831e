"""Logs that take each other's place: each is added once, from where it was added; what is forgotten is refused."""

from __future__ import annotations

import pytest

from ragmon.monitor.partial_counts import PartialCounts
from ragmon.scoring.buckets import State
from ragmon.stream.chunk import LOGS, Chunk, ChunkAdder, ChunkError
from tests.support.saved import saved

COUNTS = PartialCounts(state=State())


def chunk(log, base, upto, until=None, lost=0):
    """A chunk of a log."""
    until = 10.0 * upto if until is None else until
    told = {"base": base, "upto": upto, "until": until, "now": until, "low": base, "config": "c"}
    return Chunk(**told, part="log/0", partitions=1, log=log, counts=COUNTS, lost=lost)


@pytest.fixture
def adder():
    return ChunkAdder()


def test_a_log_that_comes_back_goes_on_where_it_was_added(adder):
    added = [adder.take(one) for one in (chunk("a", 1, 5), chunk("b", 1, 3), chunk("a", 1, 5), chunk("a", 5, 9))]
    assert added == [True, True, False, True]
    assert adder.take(chunk("b", 3, 4))
    assert adder.state.results == {"added": 2, "repeated": 1, "returned": 2}
    assert (adder.position("log/0").log, adder.position("log/0", "a").upto) == ("b", 9)


def test_that_logs_take_turns_is_known_with_the_time(adder):
    adder.take(chunk("a", 1, 5))
    adder.take(chunk("b", 1, 3))
    assert adder.state.returned == {}
    adder.take(chunk("a", 5, 9))
    assert adder.state.returned == {"log/0": 90.0}


def test_of_a_log_that_comes_back_an_overlap_is_refused_and_a_gap_is_lost_as_ever(adder):
    adder.take(chunk("a", 1, 5))
    adder.take(chunk("b", 1, 3))
    with pytest.raises(ChunkError, match="overlaps what was added up to 5"):
        adder.take(chunk("a", 4, 9))
    assert adder.take(chunk("a", 6, 9))
    assert adder.lost == 1


def test_time_does_not_go_back_and_what_was_lost_stays_lost(adder):
    adder.take(chunk("a", 1, 5, until=500.0, lost=4))
    adder.take(chunk("b", 1, 3, until=20.0, lost=2))
    assert (adder.watermark(0.0), adder.lost) == (500.0, 6)
    adder.take(chunk("a", 5, 6, until=510.0))
    assert (adder.watermark(0.0), adder.lost) == (510.0, 6)


def test_the_newest_logs_are_remembered_and_an_older_one_is_refused(adder):
    for number in range(LOGS + 1):
        adder.take(chunk(f"log{number}", 1, 3))
    for number in range(1, LOGS + 1):
        assert not adder.take(chunk(f"log{number}", 1, 3))
    with pytest.raises(ChunkError, match=f"is of a log, 'log0', that {LOGS} others have replaced") as error:
        adder.take(chunk("log0", 1, 3))
    assert error.value.hint == "use one topic for it"
    assert adder.refusal


def test_all_of_it_is_saved(adder):
    for number in range(LOGS + 1):
        adder.take(chunk(f"log{number}", 1, 3))
    again = ChunkAdder()
    again.state = saved(adder.state)
    assert not again.take(chunk("log1", 1, 3))
    assert again.take(chunk("log1", 3, 4))
    with pytest.raises(ChunkError, match="is of a log"):
        again.take(chunk("log0", 3, 4))


def test_a_chunk_without_messages_is_added_once_for_each_time_it_tells(adder):
    """It may have labels that wait no longer for their answers."""
    adder.take(chunk("a", 1, 5))
    found = [adder.take(chunk("a", 5, 5, until)) for until in (60.0, 60.0, 70.0, 60.0)]
    assert found == [True, False, True, False]
