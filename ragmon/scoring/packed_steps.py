"""A minute in the form in which it is sent: each name and each tuple of facts once, and numbers that refer to them.

Nearly all that a minute holds is hashes of sessions and questions, which no compression makes smaller. A `StepState`
has them as text, wherever they occur; here they are bytes, and occur once. Numbers stand in columns, and those that
mostly grow by one as differences, which compress to next to nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from itertools import accumulate, islice, pairwise
from typing import Final, Generic, TypeVar

import msgspec

from ragmon.metrics.facts import Key
from ragmon.scoring.counts import key_text, text_key
from ragmon.scoring.membership import HASH_DIGITS, Membership
from ragmon.scoring.minutes import CountedRecord, Step

T = TypeVar("T")
_HEX: Final = frozenset("0123456789abcdef")


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


class _Numbers(Generic[T]):
    """Gives each thing a number, in the order in which they are asked for."""

    def __init__(self) -> None:
        self.known: dict[T, int] = {}

    def of(self, thing: T) -> int:
        return self.known.setdefault(thing, len(self.known))


def pack(step: Step) -> PackedStep:
    """A step in the form in which it is sent."""
    step.flush()
    members, keys = _Numbers[Membership](), _Numbers[Key]()
    member, key = members.of, keys.of
    facts = [
        (place, _columns(((member(who), key(what), n) for who, cells in held.items() for what, n in cells.items()), 3))
        for place, held in step.facts.items()
    ]
    measures = [
        (place, _columns(((member(who), n, total) for who, (n, total) in held.items()), 3))
        for place, held in step.measures.items()
    ]
    latency = [
        (
            source,
            _columns(((member(who), len(values)) for who, values in held.items()), 2),
            " ".join(repr(value) for values in held.values() for value in values),
        )
        for source, held in step.latency.items()
    ]
    hashes, names, places = _names(members.known)
    return PackedStep(
        step.minute,
        hashes,
        names,
        places,
        [key_text(facts_key) for facts_key in keys.known],
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


def _columns(rows: Iterable[tuple[int, ...]], width: int) -> Columns:
    """Rows as columns."""
    first, *others = list(map(list, zip(*rows, strict=True))) or [[] for _ in range(width)]
    return [[number - before for before, number in pairwise([0, *first])], *others]


def _rows(columns: Columns) -> Iterable[tuple[int, ...]]:
    """Undo `_columns`."""
    first, *others = columns
    return zip(accumulate(first), *others, strict=True)


def _names(members: Collection[Membership]) -> tuple[bytes, list[str], Columns]:
    """The names of memberships: hashes, others, and the numbers of each membership."""
    used = dict.fromkeys(name for member in members for name in member)
    hashed = [name for name in used if _is_hash(name)]
    others = [name for name in used if not _is_hash(name)]
    numbers = {name: number for number, name in enumerate((*hashed, *others))}
    rows = ((numbers[session], numbers[question], numbers[alone]) for session, question, alone in members)
    return b"".join(map(bytes.fromhex, hashed)), others, _columns(rows, 3)


def _is_hash(name: str) -> bool:
    return len(name) == HASH_DIGITS and _HEX.issuperset(name)


def unpack(packed: PackedStep) -> Step:
    """The step that `pack` packed.

    Raises:
        IndexError: It is damaged.
    """
    size = HASH_DIGITS // 2
    hashed = [packed.hashes[start : start + size].hex() for start in range(0, len(packed.hashes), size)]
    names = [*hashed, *packed.names]
    members = [Membership(names[a], names[b], names[c]) for a, b, c in _rows(packed.members)]
    keys = [text_key(text) for text in packed.keys]
    step = Step(packed.minute)
    for place, columns in packed.facts:
        held = step.facts[place] = {}
        for who, what, n in _rows(columns):
            held.setdefault(members[who], {})[keys[what]] = n
    for measured, columns in packed.measures:
        step.measures[measured] = {members[who]: [n, total] for who, n, total in _rows(columns)}
    for source, columns, text in packed.latency:
        values = iter(map(float, text.split()))
        step.latency[source] = {members[who]: list(islice(values, n)) for who, n in _rows(columns)}
    step.shapes = {shape: Counter(counts) for shape, counts in packed.shapes}
    step.indexes, step.cites, step.in_gold = set(packed.indexes), packed.cites, packed.in_gold
    step.judged, step.records = dict(packed.judged), packed.records
    return step
