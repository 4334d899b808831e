"""Labels that come to a server which adds up what workers count: they are sent to the topic in which the answers are.

A label is a line of a trace log, with the trace id as its key, so that it gets to the partition of its answer. It is
the same line whatever else is in the topic; a worker tells it by its first byte.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from threading import Event, Lock, Thread
from typing import Any, Final

from ragmon.config.services import StreamTable
from ragmon.core.http_server import RejectedError
from ragmon.core.record import Label, encode
from ragmon.stream import kafka
from ragmon.stream.kafka import client, client_settings

WITHIN_MS: Final = 30_000
"""Milliseconds in which the broker must take a label; its sender may try again after that."""
UNAVAILABLE: Final = 503
RETRY_AFTER: Final = 5.0
_POLL: Final = 0.1
_JOIN: Final = 5.0
_REASON: Final = "broker"
_log = logging.getLogger("ragmon.server")


class LabelProducer:
    """Sends labels to the topic of requests.

    Args:
        stream: The table.

    Raises:
        RagmonError: The Kafka client is not installed, or a setting of it is wrong.
    """

    def __init__(self, stream: StreamTable) -> None:
        self._topic = stream.spans
        settings = client_settings(
            stream, partitioner=stream.partitioner, linger__ms=5, message__timeout__ms=WITHIN_MS, acks="all"
        )
        self._producer = client(kafka.confluent().Producer, settings)
        self._stopping = Event()
        self._thread = Thread(target=self._work, name="ragmon-labels", daemon=True)

    def start(self) -> None:
        """Start the thread that learns what became of labels."""
        self._thread.start()

    def stop(self) -> None:
        """Send what waits, and end the thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_JOIN)
        self._producer.flush(_JOIN)

    def send(self, labels: Sequence[Label]) -> Future[None]:
        """Send labels; the result is there once the broker has all of them.

        A label that is sent again with the others is counted as a duplicate.
        """
        sending = _Sending(len(labels))
        for label in labels:
            try:
                self._producer.produce(
                    self._topic, encode(label).rstrip(), label.trace_id.encode(), on_delivery=sending.delivered
                )
            except (BufferError, kafka.confluent().KafkaException) as error:
                sending.delivered(error, None)
        return sending.future

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._producer.poll(_POLL)


class _Sending:
    """Labels of one request that are under way.

    Args:
        number: How many.

    Attributes:
        future: Resolved when the broker has all of them, or one cannot be sent.
    """

    def __init__(self, number: int) -> None:
        self.future: Future[None] = Future()
        self._left, self._error = number, ""
        self._lock = Lock()
        if not number:
            self.future.set_result(None)

    def delivered(self, error: Any, _: Any) -> None:
        """Note what became of one of them; the last one resolves the future."""
        with self._lock:
            self._left -= 1
            self._error = self._error or ("" if error is None else str(error))
            is_last = not self._left
        if is_last and not self._error:
            self.future.set_result(None)
        elif is_last:
            _log.warning("labels cannot be sent: %s", self._error)
            message = f"the broker does not take it ({self._error})"
            self.future.set_exception(RejectedError(UNAVAILABLE, _REASON, message, RETRY_AFTER))
