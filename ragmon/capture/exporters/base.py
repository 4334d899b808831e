"""The sink of a forked child whose parent scores its records in its own memory.

Where records go, and where they may stay before. All of it is called off the request path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ragmon.core import constants
from ragmon.core.log import warn_once, whereabouts
from ragmon.core.record import Label, Record, Totals


class DroppingExporter:
    """Loses every record, counted and said: what the parent serves cannot see this process."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Count records as lost."""
        warn_once(
            "this process was forked from one with a monitor of its own, which cannot see it: its records are dropped "
            "and counted; name a server in [export] endpoint, or call ragmon.install() in each worker"
        )
        return {constants.FORKED: len(records)}


BATCH: Final = 512
"""Records a sink that takes batches is given at once."""


class Exporter(Protocol):
    """One method: take a record.

    A sink may have four methods more: `export_totals(totals)` takes a producer's counts of all calls, `label(labels)`
    what people say of answers, `confirms(trace_id)` says whether a record it was given before a crash has arrived, and
    `close()` ends it.
    """

    def submit(self, record: Record) -> None:
        """Take a record; called from one thread, off the request path. What it raises, loses the record."""


@runtime_checkable
class BatchExporter(Protocol):
    """A sink that sends many records at once."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; returns how many were lost, by reason."""


class Processor(Protocol):
    """Where records may stay a while on their way to the sink."""

    @property
    def holds(self) -> bool:
        """Whether any are there."""

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records; returns those that go on now, earlier ones among them. Never blocks, loses none.

        Args:
            records: Each may stay.
            until: When all must be back, by the monotonic clock.
        """


class ExporterAdapter:
    """The way to a sink of either form; nothing it raises or says comes through unchecked.

    Args:
        sink: The sink.

    Attributes:
        at_once: How many records it is given at once.
    """

    def __init__(self, sink: Exporter | BatchExporter) -> None:
        self._deliver = sink.deliver if isinstance(sink, BatchExporter) else None
        self._submit = None if isinstance(sink, BatchExporter) else sink.submit
        self.at_once = 1 if self._deliver is None else BATCH

    def give(self, records: Sequence[Record]) -> dict[str, int]:
        """Give records to the sink; returns how many were lost, by reason."""
        try:
            if self._deliver is not None:
                return _checked(self._deliver(records), len(records))
            if self._submit is not None:
                self._submit(records[0])
        except BaseException as error:  # noqa: BLE001 - a sink may raise anything, and nobody can interrupt a thread
            warn_once(f"records could not be delivered and are dropped: {whereabouts(error)}")
            return {constants.EXPORT_FAILED: len(records)}
        return {}


def _checked(lost: Mapping[str, int], given: int) -> dict[str, int]:
    """What a sink says it lost, where that can be.

    Raises:
        Exception: It cannot.
    """
    found = {reason: int(n) for reason, n in lost.items()}
    if any(n < 0 for n in found.values()) or sum(found.values()) > given:
        raise ValueError(f"a sink says it lost {found} of {given} records")
    return found


class Tee:
    """Hands every record to several sinks, also where one of them fails.

    Args:
        sinks: In the order they get the record.
    """

    def __init__(self, *sinks: Exporter) -> None:
        self._sinks = sinks

    def submit(self, record: Record) -> None:
        """Take a record.

        Raises:
            Exception: What the first sink that failed raised, once all of them have had the record.
        """
        failed: Exception | None = None
        for sink in self._sinks:
            try:
                sink.submit(record)
            except Exception as error:  # noqa: BLE001 - one sink's trouble is not another's
                failed = failed or error
        if failed is not None:
            raise failed

    def report(self, totals: Sequence[Totals]) -> bool:
        """Take a producer's counts of all calls; returns whether all who take them have them."""
        # Every one of them, also after one that has not taken them.
        taken = [export_totals(sink, totals) for sink in self._sinks]
        return all(taken)

    def label(self, labels: Sequence[Label]) -> bool:
        """Take what people say of answers; returns whether all who take it have it."""
        told = [label(sink, labels) for sink in self._sinks]
        return all(told)

    def holds(self, trace_id: str) -> bool | None:
        """Whether every sink that can tell has a record; None where none can."""
        answers = [answer for sink in self._sinks if (answer := confirms(sink, trace_id)) is not None]
        return all(answers) if answers else None


class BatchTee(Tee):
    """The same, where one of them sends in batches.

    Args:
        batch: Gets the records first.
        sinks: Get them one by one.
    """

    def __init__(self, batch: BatchExporter, *sinks: Exporter) -> None:
        super().__init__(*sinks)
        self._batch = batch

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Deliver records; as many count as lost as the sink lost that lost most."""
        lost = self._batch.deliver(records)
        failed = 0
        for record in records:
            try:
                super().submit(record)
            except Exception:  # noqa: BLE001 - counted
                failed += 1
        return lost if sum(lost.values()) >= failed else {constants.EXPORT_FAILED: failed}

    def report(self, totals: Sequence[Totals]) -> bool:
        """Take a producer's counts of all calls; returns whether all who take them have them."""
        told = [export_totals(self._batch, totals), super().report(totals)]
        return all(told)

    def label(self, labels: Sequence[Label]) -> bool:
        """Take what people say of answers; returns whether all who take it have it."""
        told = [label(self._batch, labels), super().label(labels)]
        return all(told)


class ForwardingExporter:
    """What stands before a sink: all but records goes straight on to it.

    Args:
        sink: The sink.
    """

    def __init__(self, sink: Exporter | BatchExporter) -> None:
        self._sink = sink

    def report(self, totals: Sequence[Totals]) -> bool:
        """Hand on a producer's counts of all calls; returns whether they arrived."""
        return export_totals(self._sink, totals)

    def label(self, labels: Sequence[Label]) -> bool:
        """Hand on what people say of answers; returns whether it arrived."""
        return label(self._sink, labels)

    def holds(self, trace_id: str) -> bool | None:
        """Whether the record of a trace arrived; None where nobody can tell."""
        return confirms(self._sink, trace_id)


def export_totals(sink: Any, totals: Sequence[Totals]) -> bool:
    """Give a sink a producer's counts, where it takes them; returns whether it has them, or takes none."""
    take = getattr(sink, "report", None)
    return take is None or not totals or take(totals) is not False


def label(sink: Any, labels: Sequence[Label]) -> bool:
    """Give a sink what people say of answers, where it takes that; returns whether it has it, or takes none."""
    take = getattr(sink, "label", None)
    return take is None or not labels or take(labels) is not False


def confirms(sink: Any, trace_id: str) -> bool | None:
    """Whether a sink has a record; None where it cannot tell."""
    ask = getattr(sink, "holds", None)
    return None if ask is None else ask(trace_id)


def close(sink: Any) -> None:
    """End a sink, where it can be."""
    end = getattr(sink, "close", None)
    if end is not None:
        end()
