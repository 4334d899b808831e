"""A label whose answer does not come travels once, at a time that the log decides, in a chunk that goes anyway."""

from __future__ import annotations

import pytest

from ragmon.config.load import defaults
from ragmon.core.record import Label, encode
from ragmon.server.state import entries
from ragmon.stream.worker import CountingLimits, PartitionCounter

LIMITS = CountingLimits(period=10.0, memory=60.0)
LABEL = Label(trace_id=f"{1:032x}", rater="ada", correct=True)
MESSAGE = encode(LABEL)


def counter(last=None):
    """A counter of a partition whose first message is a label."""
    base = 1 if last is None else last.upto
    return PartitionCounter("log/0", base, defaults(), (), LIMITS, now=1000.0, last=last, read=lambda _: [])


def told(chunks):
    """The time each chunk tells, and how many labels it has."""
    return [(chunk.until, sum(isinstance(line, Label) for line in entries(chunk.lines))) for chunk in chunks]


def passing(counting, times, offset):
    """The chunks of a time in which no message comes."""
    return [chunk for at in times for chunk in counting.until(offset, at)]


@pytest.mark.parametrize("times", [range(1005, 1100), range(1005, 1100, 7), [1009, 1069, 1079, 1099]])
def test_when_it_expires_does_not_depend_on_how_often_somebody_asks(times):
    counting = counter()
    chunks = [*counting.take(1, 1001.0, MESSAGE, [LABEL]), *passing(counting, times, 2)]
    assert [until for until, labels in told(chunks) if labels] == [1070.0]
    assert sum(labels for _, labels in told(chunks)) == 1


def test_it_needs_no_chunk_of_its_own():
    """A worker tells the time every period anyway."""
    with_label, without = counter(), counter()
    found = []
    for counting, labels in ((with_label, [LABEL]), (without, [])):
        chunks = [*counting.take(1, 1001.0, MESSAGE, labels), *passing(counting, range(1005, 1100), 2)]
        found.append([chunk.until for chunk in chunks])
    assert found[0] == found[1]


@pytest.mark.parametrize("place", range(8))
def test_whoever_goes_on_after_any_chunk_tells_of_it_neither_twice_nor_never(place):
    first = counter()
    chunks = [*first.take(1, 1001.0, MESSAGE, [LABEL]), *passing(first, range(1005, 1100, 3), 2)]
    last = chunks[place]
    again = counter(last)
    again.warm_up([(1, 1001.0, MESSAGE)] if last.upto > 1 else [])
    rest = passing(again, range(int(last.until) + 1, 1100, 5), 2)
    assert sum(labels for _, labels in told([*chunks[: place + 1], *rest])) == 1
