"""What becomes of the requests a span processor gathers: a draw, a record, and its way to the sink."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from ragmon.capture.draws import SPAN, Odds, random, threshold
from ragmon.capture.gathering import Gathered, Gathering, Limits
from ragmon.capture.parents import read
from ragmon.capture.worker import Ready, Worker
from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.paths import Path
from ragmon.core.record import Record, Sampling
from ragmon.ingest.spans import Merge, per_request, to_record
from ragmon.ingest.spans.model import Trace, neutral, resource

DECORATED: Final = "decorated"
"""Why spans around a decorated call are no record: its own is."""
_SHARE: Final = 2048
"""Bytes a span keeps alive, roughly."""


@dataclass(frozen=True)
class Asked:
    """What is asked of requests nobody decorated.

    Args:
        rate: Share that is kept, by the draw their trace id is.
        keep: Rates at which others are kept for their outcome.
        slow_above: Seconds above which a request counts as slow.
        refusals: Folded refusal tokens.
        pipeline: The pipeline's name; None takes the workflow's, then the service's.
        id_from: Path from a document to its id.
        merge: What several retrievals make.
        limits: How long and how much is waited for.
    """

    rate: float = 1.0
    keep: Mapping[str, float] = field(default_factory=dict)
    slow_above: float = float("inf")
    refusals: frozenset[str] = frozenset({constants.REFUSAL_TOKEN})
    pipeline: str | None = None
    id_from: Path | None = None
    merge: Merge = "concat"
    limits: Limits = field(default_factory=Limits)


class Requests:
    """Turns gathered requests into records.

    Args:
        worker: Delivers them.
        asked: What is kept, and how it is read.

    Attributes:
        gathering: The requests that run.
        lowest: The smallest draw that is gathered.
        ignored: Requests that are no RAG, by reason.
    """

    def __init__(self, worker: Worker, asked: Asked) -> None:
        self._worker = worker
        self._asked = asked
        self._threshold = threshold(asked.rate)
        self.lowest = 0 if any(asked.keep.values()) else self._threshold
        self._ending = False
        self.begin_again()

    def begin_again(self) -> None:
        """Begin anew in a forked child."""
        self.gathering = Gathering(self._asked.limits)
        self.ignored: Counter[str] = Counter()

    def sweep(self, asked: bool = False) -> None:
        """Hand over requests nothing more is to be waited for, in the worker's thread.

        Args:
            asked: Somebody waits: do not linger.
        """
        for found in self.gathering.due(hurried=asked, all_of_them=self._ending):
            try:
                self._take(found)
            except Exception as error:  # noqa: BLE001 - attributes are foreign data
                self.ignored[constants.INVALID_SCHEMA] += 1
                warn_once(f"a request's spans could not be read: {whereabouts(error)}")

    def awaken(self) -> None:
        """See that what is gathered will be delivered: a fork does not copy the thread."""
        self._worker.start()

    def claim(self, span_id: int) -> None:
        """A decorated call began in a span; what lies around it is no request of its own."""
        self.gathering.claim(span_id)

    def _take(self, found: Gathered) -> None:
        if found.claimed:
            self.ignored[DECORATED] += 1
            return
        for request in per_request(map(neutral, found.spans)):
            self._make(request, found)

    def _make(self, request: Trace, found: Gathered) -> None:
        of_process = resource(found.spans[0]) if found.spans else {}
        mapped = to_record(
            request,
            id_from=self._asked.id_from,
            merge=self._asked.merge,
            pipeline=self._asked.pipeline,
            service=_text(of_process.get("service.name")),
            build=_text(of_process.get("service.version")),
        )
        if mapped.record is None:
            self.ignored[mapped.reason] += 1
            return
        record = self._sampled(mapped.record, found)
        if record is not None:
            self._worker.submit(Ready(record, _SHARE * len(found.spans)))

    def _sampled(self, record: Record, found: Gathered) -> Record | None:
        """The record with how it came to be kept; None where it is not."""
        odds = self._odds(found)
        stratum = self._stratum(record)
        keep = self._asked.keep.get(stratum, 0.0)
        if not odds.audit and random() >= keep:
            return None
        return msgspec.structs.replace(
            record,
            partial=record.partial or not found.complete,
            sampling=Sampling(audit=odds.audit, stratum=stratum, p_audit=odds.p_audit, p=odds.p(keep)),
        )

    def _odds(self, found: Gathered) -> Odds:
        """How the draw went; where the application's sampler tells its own rate, only what it let through is seen."""
        if not found.spans:
            return Odds(found.trace_id % SPAN >= self._threshold, self._asked.rate)
        parent = read(found.spans[-1].context)
        told = parent.sampled and parent.rejected is not None
        odds = parent.odds(self._asked.rate, self._threshold, respected=told)
        return odds if odds is not None else Odds(audit=False, p_audit=0.0)

    def _stratum(self, record: Record) -> str:
        if not self._asked.keep:
            return constants.REST
        if record.error is not None:
            return "error"
        claim = record.answer_json.claim if record.answer_json is not None else None
        if claim is not None and claim.strip().casefold() in self._asked.refusals:
            return "refusal"
        total = record.latency_ms.total if record.latency_ms is not None else None
        return "slow" if total is not None and total > 1000 * self._asked.slow_above else constants.REST

    def flush(self, timeout: float) -> bool:
        """Deliver the requests that are over, within some seconds; returns whether there was time."""
        return self._worker.flush(timeout)

    def end(self) -> None:
        """From now on take every request as it is."""
        self._ending = True


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
