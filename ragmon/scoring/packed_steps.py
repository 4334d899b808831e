"""A minute in the form in which it is sent: each name and each tuple of facts once, and numbers that refer to them.

Nearly all that a minute holds is hashes of sessions and questions, which no compression makes smaller. A `StepState`
has them as text, wherever they occur; here they are bytes, and occur once. Numbers stand in columns, and those that
mostly grow by one as differences, which compress to next to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, count, islice
from operator import sub
from typing import Final, TypeVar

import msgspec

from ragmon.metrics.facts import Key
from ragmon.scoring.counts import key_text, text_key
from ragmon.scoring.membership import HASH_DIGITS, Membership
from ragmon.scoring.steps import CountedRecord, Step, once

T = TypeVar("T")
_HEX: Final = "0123456789abcdef"


Columns = list[list[int]]
"""Columns of the same length; the first one as differences."""


class PackedStep(msgspec.Struct, omit_defaults=True):
    """A `Step` as it is sent.

    Attributes:
        minute: Minutes since the epoch.
        hashes: Names that are hashes, 8 bytes each; they have the numbers from 0.
        names: The other names; they have the numbers after those.
        members: Session, question and what stands alone of each membership, as columns of numbers of names.
        keys: Tuples of facts, as text.
        facts: By place, columns: numbers of memberships, numbers of facts, and counts.
        measures: By place and metric, columns: numbers of memberships, n, and sums.
        latency: By source, columns: numbers of memberships, how many values each has; and the values as text.
        shapes, indexes, cites, in_gold, judged, records: As in `Step`.
    """

    minute: int
    hashes: bytes
    names: list[str]
    members: Columns
    keys: list[str]
    facts: list[tuple[CountedRecord, Columns]]
    measures: list[tuple[tuple[CountedRecord, str], Columns]] = []
    latency: list[tuple[str, Columns, str]] = []
    shapes: list[tuple[tuple[str, str], dict[int, int]]] = []
    indexes: list[tuple[str, str]] = []
    cites: bool = False
    in_gold: bool | None = None
    judged: list[tuple[tuple[str, str, str], list[int]]] = []
    records: int = 0


def pack(step: Step) -> PackedStep:
    """A step in the form in which it is sent."""
    step.flush()
    members = _numbers(chain(*step.facts.values(), *step.measures.values(), *step.latency.values()))
    keys = _numbers(chain.from_iterable(chain.from_iterable(held.values()) for held in step.facts.values()))
    member, key = members.__getitem__, keys.__getitem__
    facts = [(place, _fact_columns(held, member, key)) for place, held in step.facts.items()]
    measures = [
        (
            measured,
            [_differences(map(member, sums)), [n for n, _ in sums.values()], [total for _, total in sums.values()]],
        )
        for measured, sums in step.measures.items()
    ]
    latency = [
        (
            source,
            [_differences(map(member, took)), list(map(len, took.values()))],
            " ".join(map(repr, chain.from_iterable(took.values()))),
        )
        for source, took in step.latency.items()
    ]
    hashes, names, places = _names(members)
    return PackedStep(
        step.minute,
        hashes,
        names,
        places,
        [key_text(facts_key) for facts_key in keys],
        facts,
        measures,
        latency,
        list(step.shapes.items()),
        sorted(step.indexes),
        step.cites,
        step.in_gold,
        list(step.judged.items()),
        step.records,
    )


def _fact_columns(
    held: Mapping[Membership, Mapping[Key, int]], member: Callable[[Membership], int], key: Callable[[Key], int]
) -> Columns:
    """The facts of one place as columns."""
    who = [number for number, cells in zip(map(member, held), held.values(), strict=True) for _ in cells]
    what = list(map(key, chain.from_iterable(held.values())))
    return [_differences(who), what, [n for cells in held.values() for n in cells.values()]]


def _numbers(things: Iterable[T]) -> dict[T, int]:
    """Gives each thing a number, in the order in which they occur first."""
    return dict(zip(dict.fromkeys(things), count(), strict=False))


def _differences(numbers: Iterable[int]) -> list[int]:
    """A first column; `accumulate` undoes it.

    >>> _differences([5, 6, 8])
    [5, 1, 2]
    """
    column = list(numbers)
    return list(map(sub, column, [0, *column]))


def _names(members: Collection[Membership]) -> tuple[bytes, list[str], Columns]:
    """The names of memberships: hashes, others, and the numbers of each membership."""
    used = dict.fromkeys(chain.from_iterable((who.session, who.question, who.alone) for who in members))
    hashed = _hashes(used)
    numbers = _numbers(hashed)
    others = [name for name in used if name not in numbers]
    for name in others:
        numbers[name] = len(numbers)
    sessions = _differences(numbers[who.session] for who in members)
    questions, alone = [numbers[who.question] for who in members], [numbers[who.alone] for who in members]
    return bytes.fromhex("".join(hashed)), others, [sessions, questions, alone]


def _hashes(names: Iterable[str]) -> list[str]:
    """The names that are hashes."""
    found = [name for name in names if len(name) == HASH_DIGITS]
    if "".join(found).strip(_HEX):  # to look at all of them at once is five times as fast
        found = [name for name in found if not name.strip(_HEX)]
    return found


def unpack(packed: PackedStep) -> Step:
    """The step that `pack` packed.

    Raises:
        IndexError: It is damaged.
    """
    digits = packed.hashes.hex()
    names = [*(digits[at : at + HASH_DIGITS] for at in range(0, len(digits), HASH_DIGITS)), *packed.names]
    sessions, questions, alone = packed.members
    name = names.__getitem__
    members = list(map(Membership, map(name, accumulate(sessions)), map(name, questions), map(name, alone)))
    keys = [text_key(text) for text in packed.keys]
    step = Step(packed.minute)
    for place, columns in packed.facts:
        step.facts[place] = _facts(columns, members, keys)
    for measured, (who, n, total) in packed.measures:
        step.measures[measured] = dict(zip(_things(members, who), map(list, zip(n, total, strict=True)), strict=True))
    for source, (who, sizes), text in packed.latency:
        values = map(float, text.split())
        step.latency[source] = {
            member: (next(values),) if size == 1 else list(islice(values, size))
            for member, size in zip(_things(members, who), sizes, strict=True)
        }
    step.shapes = {shape: Counter(counts) for shape, counts in packed.shapes}
    step.indexes, step.cites, step.in_gold = set(packed.indexes), packed.cites, packed.in_gold
    step.judged, step.records = dict(packed.judged), packed.records
    return step


def _things(things: Sequence[T], first: Iterable[int]) -> Iterator[T]:
    """The things that the numbers of a first column stand for."""
    return map(things.__getitem__, accumulate(first))


def _facts(columns: Columns, members: Sequence[Membership], keys: Sequence[Key]) -> dict[Membership, dict[Key, int]]:
    """The facts of one place by membership."""
    first, numbers, counts = columns
    who, what = list(_things(members, first)), list(map(keys.__getitem__, numbers))
    held = dict(zip(who, map(once, what), strict=True))
    busy = {member for member, n in zip(who, counts, strict=True) if n != 1}
    if len(held) < len(who):
        busy.update(member for member, rows in Counter(who).items() if rows > 1)
    held.update((member, {}) for member in busy)
    for member, key, n in zip(who, what, counts, strict=True) if busy else ():
        if member in busy:
            held[member][key] = n
    return held
