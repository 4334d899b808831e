"""Protocols of exporters and processors of records, and their combinations. All of it runs off the request path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

from ragmon.core import constants
from ragmon.core.errors import UnavailableError, error_location, warn_once
from ragmon.core.record import Label, Record, Totals


class DroppingExporter:
    """Drops and counts every record: the exporter of a forked child whose parent scores records in its own memory."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Count all records as lost, with one warning."""
        warn_once(
            "this process was forked from one with a monitor of its own, which cannot see it: its records are dropped "
            "and counted; name a server in [export] endpoint, or call ragmon.install() in each worker"
        )
        return {constants.FORKED: len(records)}


BATCH: Final = 512
"""Largest number of records in a batch."""


class Exporter(Protocol):
    """An exporter of single records.

    An exporter may have four more methods: `report(totals)` exports a producer's counts of all calls, `label(labels)`
    exports ratings of answers, `holds(trace_id)` tells whether a record that was exported before a crash has arrived,
    and `close()`.
    """

    def submit(self, record: Record) -> None:
        """Export a record; called from one thread, off the request path. If it raises, the record is lost."""


@runtime_checkable
class BatchExporter(Protocol):
    """An exporter of batches of records."""

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Export records; returns how many were lost, by reason."""


class Processor(Protocol):
    """An asynchronous step between the worker and the exporter, for example judging."""

    @property
    def holds(self) -> bool:
        """Whether it holds any records."""

    def take(self, records: Sequence[Record], until: float) -> list[Record]:
        """Take records; returns those to export now, earlier ones among them. Never blocks, never loses a record.

        Args:
            records: New records, each of which may be held back.
            until: Deadline for all records to be returned, by the monotonic clock.
        """


class ExporterAdapter:
    """One interface to both kinds of exporters; it catches what they raise, and checks what they return.

    Args:
        sink: The exporter.

    Attributes:
        at_once: Largest number of records in one call.
    """

    def __init__(self, sink: Exporter | BatchExporter) -> None:
        self._deliver = sink.deliver if isinstance(sink, BatchExporter) else None
        self._submit = None if isinstance(sink, BatchExporter) else sink.submit
        self.at_once = 1 if self._deliver is None else BATCH

    def give(self, records: Sequence[Record]) -> dict[str, int]:
        """Export records; returns how many were lost, by reason."""
        try:
            if self._deliver is not None:
                return _checked(self._deliver(records), len(records))
            if self._submit is not None:
                self._submit(records[0])
        except UnavailableError:  # whoever raises it has logged it
            return {constants.EXPORT_FAILED: len(records)}
        except BaseException as error:  # noqa: BLE001 - an exporter may raise anything, and the thread must go on
            warn_once(f"records could not be delivered and are dropped: {error_location(error)}")
            return {constants.EXPORT_FAILED: len(records)}
        return {}


def _checked(lost: Mapping[str, int], sent: int) -> dict[str, int]:
    """The losses an exporter returned, if they are plausible.

    Raises:
        Exception: They are not.
    """
    counts = {reason: int(n) for reason, n in lost.items()}
    if any(n < 0 for n in counts.values()) or sum(counts.values()) > sent:
        raise ValueError(f"a sink says it lost {counts} of {sent} records")
    return counts


class Tee:
    """Exports every record to several exporters, also when one of them fails.

    Args:
        sinks: The exporters, in order.
    """

    def __init__(self, *sinks: Exporter) -> None:
        self._sinks = sinks

    def submit(self, record: Record) -> None:
        """Export a record.

        Raises:
            Exception: The first exception of an exporter, raised after all exporters have been called.
        """
        failed: Exception | None = None
        for sink in self._sinks:
            try:
                sink.submit(record)
            except Exception as error:  # noqa: BLE001 - the other exporters must get the record
                failed = failed or error
        if failed is not None:
            raise failed

    def report(self, totals: Sequence[Totals]) -> bool:
        """Export a producer's counts of all calls; returns whether all exporters that take counts succeeded."""
        # A list, so that every exporter is called, also after one has failed.
        results = [export_totals(sink, totals) for sink in self._sinks]
        return all(results)

    def label(self, labels: Sequence[Label]) -> bool:
        """Export ratings of answers; returns whether all exporters that take ratings succeeded."""
        results = [label(sink, labels) for sink in self._sinks]
        return all(results)

    def holds(self, trace_id: str) -> bool | None:
        """Whether every exporter that can tell has the record; None if none can."""
        answers = [answer for sink in self._sinks if (answer := confirms(sink, trace_id)) is not None]
        return all(answers) if answers else None


class BatchTee(Tee):
    """As `Tee`, with one batch exporter.

    Args:
        batch: The batch exporter; it gets the records first.
        sinks: The exporters of single records.
    """

    def __init__(self, batch: BatchExporter, *sinks: Exporter) -> None:
        super().__init__(*sinks)
        self._batch = batch

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Export records; the losses are those of the exporter that lost most."""
        lost = self._batch.deliver(records)
        failed = 0
        for record in records:
            try:
                super().submit(record)
            except Exception:  # noqa: BLE001 - counted
                failed += 1
        return lost if sum(lost.values()) >= failed else {constants.EXPORT_FAILED: failed}

    def report(self, totals: Sequence[Totals]) -> bool:
        """Export a producer's counts of all calls; returns whether all exporters that take counts succeeded."""
        results = [export_totals(self._batch, totals), super().report(totals)]
        return all(results)

    def label(self, labels: Sequence[Label]) -> bool:
        """Export ratings of answers; returns whether all exporters that take ratings succeeded."""
        results = [label(self._batch, labels), super().label(labels)]
        return all(results)


class ForwardingExporter:
    """Base of exporters in front of another: it forwards everything except records.

    Args:
        sink: The next exporter.
    """

    def __init__(self, sink: Exporter | BatchExporter) -> None:
        self._sink = sink

    def report(self, totals: Sequence[Totals]) -> bool:
        """Forward a producer's counts of all calls; returns whether they arrived."""
        return export_totals(self._sink, totals)

    def label(self, labels: Sequence[Label]) -> bool:
        """Forward ratings of answers; returns whether they arrived."""
        return label(self._sink, labels)

    def holds(self, trace_id: str) -> bool | None:
        """Whether the record of a trace arrived; None if unknown."""
        return confirms(self._sink, trace_id)


def export_totals(sink: Any, totals: Sequence[Totals]) -> bool:
    """Export a producer's counts, if the exporter takes them; returns False only if that failed."""
    report = getattr(sink, "report", None)
    return report is None or not totals or report(totals) is not False


def label(sink: Any, labels: Sequence[Label]) -> bool:
    """Export ratings of answers, if the exporter takes them; returns False only if that failed."""
    send = getattr(sink, "label", None)
    return send is None or not labels or send(labels) is not False


def confirms(sink: Any, trace_id: str) -> bool | None:
    """Whether an exporter has a record; None if it cannot tell."""
    holds = getattr(sink, "holds", None)
    return None if holds is None else holds(trace_id)


def close(sink: Any) -> None:
    """Close an exporter, if it has `close`."""
    close_method = getattr(sink, "close", None)
    if close_method is not None:
        close_method()
