"""What a scan in the native core is told: rules, gold items, streams, and the characters that fold by themselves."""

from __future__ import annotations

import struct
import unicodedata
from array import array
from collections.abc import Iterable
from functools import cache
from threading import RLock
from typing import Final, NamedTuple

from ragmon.core.constants import ALSO_LIVE_SOURCES, LABEL, LIVE
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.core.text import fold
from ragmon.gold.sets import Items
from ragmon.native.scanning import Description, Scan, as_bytes, blob, blobs, numbers
from ragmon.scoring.scorer import STREAMS, ReductionRules, Scorer, StreamCache

_FIRST: Final = 0x80
_RANGES: Final = ((_FIRST, 0x0600), (0x1E00, 0x1F00), (0x2000, 0x2300))
"""Letters of Europe with those of Vietnamese, punctuation, currencies, arrows and mathematics."""
_PARTS: Final = 3
_ALNUM, _PUNCTUATION, _SPACE = 1 << 60, 1 << 61, 1 << 62
_MISSING, _END = b"\xff", b"\xfe"
"""Mark a name that is missing, and the end of one; neither stands in UTF-8."""
_NEVER, _BY_WORDS, _ALWAYS = range(3)
"""When the patterns of a refusal rule are tried."""
_LATIN: Final = "a"
"""A letter with which many marks compose: what stands by itself does not."""


@cache
def characters() -> bytes:
    """For every character from U+0080 on, its folded characters and its kind, where it stands by itself; else 0.

    Such a character is no mark and composes with no neighbour, so that a text of them is folded character by character.
    """
    entries = array("Q", bytes(8 * (_RANGES[-1][1] - _FIRST)))
    for begin, end in _RANGES:
        for code in range(begin, end):
            entries[code - _FIRST] = _entry(chr(code))
    # A folded character is looked up again, by its own entry: what folds to one that is not there is not there either.
    for place, entry in enumerate(entries):
        folded = (entry >> 16 * part & 0xFFFF for part in range(_PARTS))
        if any(code >= _FIRST and (code - _FIRST >= len(entries) or not entries[code - _FIRST]) for code in folded):
            entries[place] = 0
    return entries.tobytes()


def _entry(char: str) -> int:
    """The entry of a character; 0 where it does not stand by itself."""
    folded = fold(char)
    if any(_is_mark(part) for part in (char, *folded)) or not 0 < len(folded) <= _PARTS:
        return 0
    if fold(f"{_LATIN}{char}{_LATIN}") != f"{_LATIN}{folded}{_LATIN}":
        return 0
    entry = 0
    for part in reversed(folded):
        entry = entry << 16 | ord(part)
    kinds = ((char.isalnum(), _ALNUM), (unicodedata.category(char).startswith("P"), _PUNCTUATION))
    return entry | sum(bit for holds, bit in (*kinds, (char.isspace(), _SPACE)) if holds)


def _is_mark(char: str) -> bool:
    """Whether a character is a mark, or invisible."""
    return unicodedata.combining(char) != 0 or unicodedata.category(char)[0] in "MC"


class Names(NamedTuple):
    """What records of one stream have in common."""

    pipeline: str | None
    source: str | None
    build: str | None
    index_hash: str | None
    model: str | None

    @classmethod
    def of(cls, record: Record) -> Names:
        """The names of a record."""
        return cls(record.pipeline, record.source, record.build, record.index_hash, record.model)

    def encoded(self) -> bytes:
        """The key under which the core finds the stream."""
        return b"".join((_MISSING if name is None else as_bytes(name)) + _END for name in self)


class KnownStream(NamedTuple):
    """A stream as both sides know it.

    Attributes:
        cache: What the scorer knows of it.
        model: The slice of its model; "" without one.
    """

    cache: StreamCache
    model: str


class Described:
    """What is described to the scans of a run, by the numbers under which they know it.

    It is described to a scan that counts nothing, from which the others learn: so rules and gold are there once.

    Args:
        scan: That scan.
        scorer: The scorer whose rules and gold they have.
        by_stratum: Whether the stratum is part of what makes a stream, as it is where requests are followed one by one.

    Attributes:
        lock: Held by who reads or changes anything here, or the scorer, while several threads scan.
        rules, items, streams: By number.
        sets: The name and the version of each gold set, by number.
        captured: Pipeline and source of what was captured, by number.
    """

    def __init__(self, scan: Scan, scorer: Scorer, *, by_stratum: bool = False) -> None:
        self._scan = scan
        self._by_stratum = by_stratum
        self._scorer = scorer
        self.lock = RLock()
        self.rules: list[ReductionRules] = []
        self.items: list[list[GoldItem]] = []
        self.streams: list[KnownStream] = []
        self.sets: list[tuple[str, str]] = []
        self.captured: list[tuple[str, str]] = []
        self._known: set[tuple[Names, str | None]] = set()
        self._item_tables: list[Items] = []
        scan.describe(Description.CHARACTERS, characters())

    def learn(self, record: Record) -> None:
        """Describe the stream of a record that Python has scored, so that the next ones are the core's."""
        names, stratum = Names.of(record), None if record.sampling is None else record.sampling.stratum
        known = (names, stratum if self._by_stratum else None)
        if known in self._known:
            return
        encoded = names.encoded()
        if self._by_stratum:
            encoded += (_MISSING if stratum is None else as_bytes(stratum)) + _END
        with self.lock:
            if known not in self._known and len(self._known) < STREAMS:
                self._describe(encoded, record)
                self._known.add(known)

    def teach(self, scan: Scan) -> None:
        """Let a scan learn what it does not know yet."""
        with self.lock:
            scan.learn(self._scan)

    def _describe(self, encoded: bytes, record: Record) -> None:
        cache = self._scorer.stream_of(record)
        model = self._scorer.model_slice(cache.pipeline, record.model) if record.model else ""
        place = (cache.pipeline, cache.source)
        if place not in self.captured:
            self.captured.append(place)
        bits = (
            (cache.source == LIVE)
            | (cache.source == LABEL) << 1
            | (cache.source not in ALSO_LIVE_SOURCES) << 2
            | bool(model) << 3
        )
        table, rule, where = self._items(cache.items), self._rule(cache.rules), self.captured.index(place)
        self._scan.describe(Description.STREAM, blob(encoded) + numbers(table, rule, where, bits, cache.lacks))
        self.streams.append(KnownStream(cache, model))

    def forget_streams(self) -> None:
        """Forget the streams, which are described again; everything that was counted was taken over."""
        self._scan.forget_streams()
        self._known.clear()
        self.streams.clear()
        self.captured.clear()

    def qids(self, stream: int) -> list[str]:
        """The ids of the gold items that records of a stream may match, by number."""
        place = next(n for n, known in enumerate(self._item_tables) if known is self.streams[stream].cache.items)
        return [item.qid for item in self.items[place]]

    def _rule(self, rules: ReductionRules) -> int:
        for number, known in enumerate(self.rules):
            if known is rules:
                return number
        facts = rules.facts
        bits = (
            facts.refusal.matcher_counts
            | facts.citations_required << 1
            | ("session" in rules.cluster) << 2
            | ("question" in rules.cluster) << 3
            | (facts.within_ms is not None) << 4
        )
        words = facts.refusal.trigger_words
        matcher = _ALWAYS if words is None else _BY_WORDS if words else _NEVER
        description = numbers(bits, matcher, facts.refusal.window) + struct.pack("<d", facts.within_ms or 0.0)
        description += blobs(_texts(facts.refusal.folded_tokens)) + blobs(words or ())
        self.rules.append(rules)
        return self._scan.describe(Description.RULE, description)

    def _items(self, items: Items) -> int:
        for number, known in enumerate(self._item_tables):
            if known is items:
                return number
        listed: list[GoldItem] = []
        places: dict[int, int] = {}
        for item in (*items.by_qid.values(), *items.by_question.values()):
            if id(item) not in places:
                places[id(item)] = len(listed)
                listed.append(item)
        described = numbers(len(listed)) + b"".join(self._item(item) for item in listed)
        qids = [blob(as_bytes(qid or "")) + numbers(places[id(item)]) for qid, item in items.by_qid.items()]
        questions = [
            blob(key.encode()) + numbers(places[id(items.by_question[key])], items.is_paraphrase(key))
            for key in _texts(items.by_question)
        ]
        described += b"".join((numbers(len(qids)), *qids, numbers(len(questions)), *questions, blobs(items.ids)))
        self._item_tables.append(items)
        self.items.append(listed)
        return self._scan.describe(Description.ITEMS, described)

    def _item(self, item: GoldItem) -> bytes:
        gold_set = (item.set_name, item.set_version)
        if gold_set not in self.sets:
            self.sets.append(gold_set)
        texts = (item.ids, _texts(item.phrases), _texts(item.gold_phrases), item.sections or ())
        head = numbers(item.offers, self.sets.index(gold_set), len(item.texts))
        return head + b"".join(map(blobs, texts))


def _texts(texts: Iterable[str]) -> list[str]:
    """The texts that can occur in a trace: one with half of a surrogate pair cannot."""
    return [text for text in texts if _can_occur(text)]


def _can_occur(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
