"""Counts the plain records of journal rows with the native core; alarms and pages follow each of them.

The core counts what a replay counts. What a server needs besides is told of each record as columns: its facts, its
cluster, its lengths and its latency. The rest of a row is Python's: records of a gold item, errors, measured text,
totals of producers. A row is Python's as a whole, if it has labels, or anything of names that were not looked at for a
minute: which names are admitted is decided in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from typing import Final, NamedTuple

from ragmon.core import constants
from ragmon.core.record import Entry, Record, Totals
from ragmon.metrics.facts import Key
from ragmon.monitor.native_export import take_over
from ragmon.monitor.native_setup import Described
from ragmon.native.library import native_core
from ragmon.native.scanning import Scan, Section, Setting
from ragmon.scoring.cardinality import CardinalityLimiter
from ragmon.scoring.failing import FailureDetector
from ragmon.scoring.membership import CLUSTER, Membership, plain_membership
from ragmon.scoring.minutes import MinuteBatches
from ragmon.scoring.scorer import FUTURE, Scorer
from ragmon.scoring.steps import PlainRequests

FEWEST: Final = 16
"""Lines of a row from which the core is asked: it costs as much as Python for some records."""
_FRUITLESS: Final = 8
"""Rows in a row with more lines for Python than for the core, after which the next ones are not tried."""
_SKIPPED: Final = 128
"""The number of those next rows."""
_MEMBERS: Final = 16_384
"""Clusters that are cached."""
_DRAWN, _EXPORTED, _CITES, _QUESTION, _QUESTION_HASH = (1 << bit for bit in range(5))
"""The bits of a request, as in src/followed.rs."""
_BOTH: Final = CLUSTER
"""The usual clusters; of these a session alone names one."""
_COLUMNS: Final = 4
_TEXTS: Final = 3


class PlainRow(NamedTuple):
    """What the core has counted of a row, beside the counts.

    Attributes:
        failing: The places of the lines that fail a gate, with their facts.
        exported: The places of those whose trace the application's tracer kept.
        names: Pipeline, build and index of the records, the one that answered last at the end.
    """

    failing: list[tuple[int, str, str, Key]]
    exported: list[int]
    names: list[tuple[str, str, str]]


class RowScan:
    """Counts the plain records of rows for one engine.

    Args:
        scorer: Its scorer, which counts by facts.
        limiter: Decides under which names records are counted.
        steps: The open minutes of its alarms.
        failing: Finds the requests that fail a gate; None where nobody asks for them.
    """

    def __init__(
        self, scorer: Scorer, limiter: CardinalityLimiter, steps: MinuteBatches, failing: FailureDetector | None
    ) -> None:
        self._scorer = scorer
        self._limiter = limiter
        self._steps = steps
        self._failing = failing
        self._scan = Scan(native_core(), keeps_lock=True)
        self._described = Described(self._scan, scorer, by_stratum=True)
        self._marks: object = None
        self._members: dict[tuple[str, bytes, bytes, int, bytes], Membership] = {}
        self._fruitless = self._skipped = 0

    @classmethod
    def of(
        cls, scorer: Scorer, limiter: CardinalityLimiter, steps: MinuteBatches, failing: FailureDetector | None
    ) -> RowScan | None:
        """A scan for an engine; None where the core is not there, or the engine needs what it does not do."""
        others = [observer for observer in scorer.observers if observer not in (failing, steps)]
        if native_core().functions is None or others or not scorer.counts_by_facts:
            return None
        return cls(scorer, limiter, steps, failing)

    def learn(self, record: Record) -> None:
        """Note the names of a record that Python has counted under them: the next ones like it are the core's."""
        if record.source not in constants.ALSO_LIVE_SOURCES and self._marks == self._now():
            self._described.learn(record)

    def _now(self) -> object:
        """Another value after the names of records were looked at anew, and after series were merged or removed."""
        return self._limiter.forgotten, self._scorer.streams_forgotten

    def read(self, lines: bytes, entries: Sequence[Entry], now: float) -> list[int] | None:
        """Read the lines of a row; nothing is counted yet.

        Args:
            lines: The lines.
            entries: The same, decoded.
            now: When the row arrived, seconds since the epoch.

        Returns:
            The places of the lines that are Python's; None where all of them are.
        """
        if len(entries) < FEWEST:
            return None
        if self._skipped:
            self._skipped -= 1
            return None
        if self._limiter.forgets_at(now):
            return None
        scan, state = self._scan, self._scorer.state
        if self._marks != self._now():
            self._described.forget_streams()
            self._marks = self._now()
        latest = now + FUTURE
        scan.follow(max(latest, state.newest) - (state.retention or latest), latest)
        scan.set(Setting.LINES, 0)
        scan.advance(state.newest, state.fold_due)
        if not scan.read(lines):
            return None
        hard = [number - 1 for number in scan.array(Section.HARD)[2::4]]
        self._note(is_fruitful=2 * len(hard) < len(entries))
        if len(hard) == len(entries) or not all(self._stands_apart(entries[place], now) for place in hard):
            return None
        return hard

    def _stands_apart(self, entry: Entry, now: float) -> bool:
        """Whether what Python does with an entry changes nothing for the records of its row, whatever their order."""
        return isinstance(entry, Totals) or (isinstance(entry, Record) and self._limiter.knows(entry, now))

    def _note(self, *, is_fruitful: bool) -> None:
        """Try no rows for a while after several that had little for the core."""
        self._fruitless = 0 if is_fruitful else self._fruitless + 1
        if self._fruitless >= _FRUITLESS:
            self._fruitless, self._skipped = 0, _SKIPPED

    def traces(self) -> Iterator[str]:
        """The traces of the records that were read."""
        return (trace_id.decode() for trace_id in self._scan.names()[2::_TEXTS])

    def rest(self, lines: bytes) -> Iterator[int]:
        """The places of the lines that are Python's, each when everything before it was counted."""
        scan, state, counted = self._scan, self._scorer.state, 0
        numbers = iter(scan.array(Section.HARD))
        for _, _, number, events in zip(numbers, numbers, numbers, numbers, strict=True):
            if events > counted:
                scan.commit(lines, events)
                state.advance(*scan.times)
                counted = events
            before = (state.newest, state.fold_due)
            yield number - 1
            if before != (state.newest, state.fold_due):
                scan.advance(state.newest, state.fold_due)
        scan.commit(lines)
        state.advance(*scan.times)

    def drop(self) -> None:
        """Forget what was counted since the last row, because Python counts it."""
        self._scan.clear()

    def finish(self, now: float) -> PlainRow:
        """Put everything that was counted into the state, and follow each record.

        Args:
            now: When the row arrived, seconds since the epoch.
        """
        scan = self._scan
        followed, values, texts = scan.array(Section.FOLLOWED).tolist(), scan.numbers(Section.VALUES), scan.names()
        numbers, streams, bits = followed[::_COLUMNS], followed[1::_COLUMNS], followed[3::_COLUMNS]
        keys = take_over(scan, self._described, self._scorer)
        keys_of = [keys[number] for number in followed[2::_COLUMNS]]
        for stream in set(streams):
            chosen = [other == stream and bit & _DRAWN for other, bit in zip(streams, bits, strict=True)]
            self._follow(stream, now, chosen, (keys_of, bits, values, texts))
        order = list(dict.fromkeys(reversed(streams)))
        caches = [self._described.streams[stream].cache for stream in reversed(order)]
        return PlainRow(
            self._failing_places(numbers, streams, keys_of),
            [number - 1 for number, bit in zip(numbers, bits, strict=True) if bit & _EXPORTED],
            [(cache.pipeline, cache.build, cache.index_hash) for cache in caches],
        )

    def _follow(
        self,
        stream: int,
        now: float,
        chosen: Sequence[object],
        columns: tuple[list[Key], list[int], list[float], list[bytes]],
    ) -> None:
        """Add the records of a stream that won the draw to the open minute."""
        keys, bits, values, texts = columns
        cache = self._described.streams[stream].cache
        found = [list(compress(texts[place::_TEXTS], chosen)) for place in range(_TEXTS)]
        chosen_bits = list(compress(bits, chosen))
        latency, score, question, answer = (
            list(compress(values[place::_COLUMNS], chosen)) for place in range(_COLUMNS)
        )
        plain = PlainRequests(
            members=self._groups(cache.pipeline, zip(found[0], found[1], found[2], chosen_bits, strict=True)),
            keys=list(compress(keys, chosen)),
            columns=(latency, question, answer, score),
            cites=any(bit & _CITES for bit in chosen_bits),
            index_pair=(cache.build, cache.index_hash) if cache.index_hash else None,
        )
        if plain.keys:
            self._steps.collect_plain(cache.pipeline, now, cache.source, plain)

    def _groups(self, pipeline: str, records: Iterable[tuple[bytes, bytes, bytes, int]]) -> list[Membership]:
        """The groups of records, given session, question, trace and bits of each."""
        clusters, known, found = self._steps.clusters_of(pipeline), self._members, []
        for session, question, trace_id, bits in records:
            kind = bits & (_QUESTION | _QUESTION_HASH)
            name = (pipeline, session, question, kind, trace_id if clusters != _BOTH or not session else b"")
            member = known.get(name)
            if member is None:
                text = question.decode()
                is_text, is_hash = bool(kind & _QUESTION), bool(kind & _QUESTION_HASH)
                member = plain_membership(
                    session.decode(), text if is_text else None, text if is_hash else "", trace_id.decode(), clusters
                )
                if len(known) >= _MEMBERS:
                    known.clear()
                known[name] = member
            found.append(member)
        return found

    def _failing_places(
        self, numbers: Sequence[int], streams: Sequence[int], keys: Sequence[Key]
    ) -> list[tuple[int, str, str, Key]]:
        """The places of the lines that fail a gate, with their facts."""
        if self._failing is None:
            return []
        failing = {
            (stream, key): (cache.pipeline, cache.source, key)
            for stream, key in set(zip(streams, keys, strict=True))
            if (cache := self._described.streams[stream].cache) is not None
            and self._failing.fails(cache.pipeline, cache.source, key)
        }
        if not failing:
            return []
        pairs = zip(numbers, zip(streams, keys, strict=True), strict=True)
        return [(number - 1, *failing[pair]) for number, pair in pairs if pair in failing]
