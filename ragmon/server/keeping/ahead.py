"""The application's own records of probes whose replies have not come: they wait for them, on disk, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ragmon.core.record import Record
from ragmon.server.keeping.replies import Replies, Reply


class Early(NamedTuple):
    """A record that waits for the reply to its probe.

    Attributes:
        trace_id: Its trace.
        record: It, as the probe it is.
        seq: Its number among what the journal lets wait; 0 where that journal is gone.
    """

    trace_id: bytes
    record: Record
    seq: int


class Ahead:
    """Records that came before the replies to their probes, by trace. No more wait than replies are expected."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, Early] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, trace_id: object) -> bool:
        return trace_id in self._waiting

    def add(self, found: Iterable[Early]) -> None:
        """Let some wait."""
        self._waiting.update((one.trace_id, one) for one in found)

    def due(self, replies: Replies, now: float) -> Iterator[tuple[Early, Reply | None]]:
        """Those that wait no longer, and the reply that has come; None where it is awaited in vain.

        Args:
            replies: What probers got, or expect.
            now: Seconds since the epoch.
        """
        for one in self._waiting.values():
            reply = replies.get(one.trace_id)
            if reply is not None and reply.came:
                yield one, reply
            elif reply is None or reply.due <= now or replies.hurried:
                yield one, None

    def settle(self, trace_ids: Iterable[bytes]) -> None:
        """It is on disk what became of some."""
        for trace_id in trace_ids:
            self._waiting.pop(trace_id, None)

    def begin_again(self) -> None:
        """The journal was lost, and with it the numbers in it."""
        self._waiting = {trace_id: one._replace(seq=0) for trace_id, one in self._waiting.items()}
