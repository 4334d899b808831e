"""Log-bucket histograms of positive values, the unit of graded scores, and the addition of counts and sums."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, repeat
from operator import rshift
from struct import Struct
from typing import Final, TypeVar

from ragmon.core import constants

MAX_NAMES: Final = 32
"""Names of a table that traffic fills."""
_DROPPED_BITS: Final = 46
_HALF: Final = 1 << (_DROPPED_BITS - 1)
NOT_POSITIVE: Final = 0  # the bucket of zero, of negative values, and of values too small for a normal double
_double, _bits = Struct("<d"), Struct("<q")
_ROUNDING: Final = 1e-9  # ignored when a number is rounded up


def bucket(value: float) -> int:
    """The bucket of a positive value: the leading bits of its floating-point form, 64 buckets an octave.

    The width of a bucket is at most 1/64 of its values, so its middle is right within 0.8 %. Zero and negative values
    share one bucket. Histograms merge by adding counts.

    Source: the layout of IEEE 754 doubles (ISO/IEC 60559); HdrHistogram and DDSketch's cubic mapping use the same idea
    (Masson, Rim, Lee, VLDB 12 (2019)).
    """
    return _bits.unpack(_double.pack(value))[0] >> _DROPPED_BITS if value > 0 else NOT_POSITIVE


def buckets(values: Sequence[float]) -> Counter[int]:
    """How many values fall into each bucket; the whole batch is counted in C."""
    positive = values if min(values, default=1.0) > 0 else [value for value in values if value > 0]
    counts = Counter(map(rshift, array("q", array("d", positive).tobytes()), repeat(_DROPPED_BITS)))
    if len(positive) < len(values):
        counts[NOT_POSITIVE] += len(values) - len(positive)
    return counts


@lru_cache(maxsize=4096)  # histograms of all pipelines have the same few thousand buckets
def bucket_value(index: int) -> float:
    """The middle of a bucket, in the unit of the values."""
    return 0.0 if index == NOT_POSITIVE else array("d", array("q", [(index << _DROPPED_BITS) + _HALF]).tobytes())[0]


def bucket_edge(index: int) -> float:
    """The upper edge of a bucket, in the unit of the values: all values in it are smaller."""
    return array("d", array("q", [(index + 1) << _DROPPED_BITS]).tobytes())[0]


def quantile(histogram: Mapping[int, int], q: float) -> float | None:
    """A quantile of a log-bucket histogram, by nearest rank.

    The middle of the bucket that contains it, in the unit of the values; None when the histogram is empty.
    """
    if not histogram:
        return None
    indices = sorted(histogram)
    sums = list(accumulate(histogram[index] for index in indices))
    rank = max(1, math.ceil(q * sums[-1] - _ROUNDING))
    return bucket_value(indices[bisect_left(sums, rank)])


def decile_edges(histogram: Mapping[int, int]) -> list[int]:
    """The buckets that divide a histogram into ten bins of about equal counts; fewer where buckets repeat."""
    indices = sorted(histogram)
    sums = list(accumulate(histogram[index] for index in indices))
    edges = {indices[bisect_left(sums, sums[-1] * tenth / 10)] for tenth in range(1, 10)} if indices else set()
    return sorted(edges - set(indices[-1:]))


MICRO: Final = 1_000_000


def micro(score: float) -> int:
    """A score in [0, 1] as an integer number of micro-units, rounded half to even."""
    return round(score * MICRO)


T = TypeVar("T")
Sums = list[int]
"""`[n, sum, squares // MICRO, squares % MICRO]` of a measure in micro-units: each part of the sum of squares adds up by
itself, and fits the 64 bits of a saved number for a lifetime of requests."""


def sums_of(n: int, score: int) -> Sums:
    """The sums of requests with one score in micro-units."""
    high, low = divmod(score * score, MICRO)
    return [n, n * score, n * high, n * low]


def count_name(into: dict[str, int], name: str, n: int = 1) -> None:
    """Count a name that traffic brings, in a table of bounded size: those that find no place are counted as `OTHER`.

    >>> table = {f"name {n}": 1 for n in range(32)}; count_name(table, "one more"); table["__other__"]
    1
    """
    if name not in into and len(into) >= MAX_NAMES:
        name = constants.OTHER
    into[name] = into.get(name, 0) + n


def add_counts(mine: dict[T, int], other: Mapping[T, int]) -> None:
    """Add counts to a dictionary of counts."""
    if not mine:  # as most are at first; this copies many at once
        mine.update(other)
        return
    for key, n in other.items():
        mine[key] = mine.get(key, 0) + n


def add_sums(mine: dict[T, Sums], key: T, sums: Iterable[int]) -> None:
    """Add sums to those of a key."""
    own_sums = mine.get(key)
    if own_sums is None:
        mine[key] = list(sums)
    else:
        for i, x in enumerate(sums):
            own_sums[i] += x
