"""Matching by meaning, where the text is: in the application's worker and over trace files, never in a server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from ragmon.assembly import function_at
from ragmon.capture.exporters.base import BatchSink, Before, Sink
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Line, Record, redacted
from ragmon.feedback import hand_on
from ragmon.gold import GoldIndex, GoldSet
from ragmon.gold.embeddings import Nearest


def nearest_of(settings: Settings, sets: Sequence[GoldSet]) -> list[Nearest]:
    """What finds the items of the sets that name an embedder.

    An embedder that fails is said once in the log, and matches nothing.

    Args:
        settings: The configuration.
        sets: The gold sets.

    Raises:
        RagmonError: The function is not there, or numpy is missing.
    """
    named = {spec.name: spec.embed for spec in settings.gold if spec.embed is not None}
    found = []
    for gold in sets:
        if gold.name not in named:
            continue
        embed = function_at(named[gold.name], f"gold.{gold.name}.embed", '"myapp.vectors:embed"')
        try:
            nearest = Nearest(gold, embed)
        except RagmonError:
            raise
        except Exception as error:  # noqa: BLE001 - an embedder is foreign code
            warn_once(f"[gold.{gold.name}] embed failed, and nothing is matched by meaning: {whereabouts(error)}")
            continue
        if nearest.calibration.reason:
            warn_once(f"[gold.{gold.name}] embed is off: {nearest.calibration.reason}")
        found.append(nearest)
    return found


class Embeddings:
    """Gives records that match no gold item by their words the one they mean.

    Args:
        sets: All gold sets.
        nearest: What finds items by meaning.
    """

    def __init__(self, sets: Sequence[GoldSet], nearest: Sequence[Nearest]) -> None:
        self._index = GoldIndex(sets)
        self._nearest = [one for one in nearest if one.calibration.threshold is not None]

    def __bool__(self) -> bool:
        return bool(self._nearest)

    def __call__(self, record: Record) -> Record:
        """The record, with the qid of the item its question means; it never raises."""
        asked = record.source in (constants.LIVE, None) and record.q is not None and not redacted(record, "q")
        if not asked or record.q is None or self._index.match(record) is not None:
            return record
        for nearest in self._nearest:
            if not nearest.gold.judges(record.pipeline or constants.DEFAULT_PIPELINE, record.source):
                continue
            try:
                item = nearest.find(record.q)
            except Exception as error:  # noqa: BLE001 - as above
                warn_once(f"[gold.{nearest.gold.name}] embed failed, such records match nothing: {whereabouts(error)}")
                continue
            if item is not None:
                return msgspec.structs.replace(record, qid=item.qid, matched=constants.BY_EMBEDDING)
        return record

    def follow(self, records: Iterable[Line]) -> Iterator[Line]:
        """Pass records of trace files on, matched."""
        for record in records:
            yield self(record) if isinstance(record, Record) else record


class Matching(Before):
    """Matches records by meaning on their way to a sink, in the worker's thread.

    Args:
        sink: The sink.
        match: Gives a record the qid of the item it means.
    """

    def __init__(self, sink: Sink | BatchSink, match: Embeddings) -> None:
        super().__init__(sink)
        self._match = match

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""
        return hand_on(self._sink, [self._match(record) for record in records])
