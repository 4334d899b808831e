"""Acknowledgements at a server that reads the topic of chunks: they go through it, so every such server hears them.

An acknowledgement tells when it was given. Each server takes it when all partitions have spoken of that time, so alarms
are silenced in the same minute everywhere, and a server that reads the topic from its beginning silences them alike.
"""

from __future__ import annotations

from concurrent.futures import Future
from http import HTTPStatus
from threading import Thread
from typing import Final

from ragmon.config.services import StreamTable
from ragmon.core.errors import RagmonError
from ragmon.core.http_server import RejectedError
from ragmon.core.record import Ack, encode_entry
from ragmon.stream import kafka
from ragmon.stream.kafka import client, client_settings

KEY: Final = b"ack"
PARTITION: Final = 0
"""The partition of the topic of chunks in which acknowledgements are."""
WRITTEN_WITHIN: Final = 10.0
"""Seconds in which the broker must take one."""
PAUSE: Final = 5.0
"""Seconds after which whoever acknowledges may try again."""


class AckSender:
    """Writes acknowledgements to the topic of chunks.

    Args:
        stream: The table of the configuration.
    """

    def __init__(self, stream: StreamTable) -> None:
        self._stream = stream

    def send(self, ack: Ack, *, fired: bool) -> Future[bool]:
        """Write an acknowledgement, in a thread of its own: it is rare, and the broker may take its time.

        Args:
            ack: The acknowledgement, with its time.
            fired: Whether the alarm fires: the result, once it is written.
        """
        done: Future[bool] = Future()

        def work() -> None:
            try:
                self._write(ack)
            except RagmonError as error:
                message = f"the acknowledgement cannot be written to {self._stream.chunks}: {error}"
                done.set_exception(RejectedError(HTTPStatus.SERVICE_UNAVAILABLE, "broker", message, PAUSE))
            except BaseException as error:  # noqa: BLE001 - the future carries the error
                done.set_exception(error)
            else:
                done.set_result(fired)

        Thread(target=work, name="ragmon-ack", daemon=True).start()
        return done

    def _write(self, ack: Ack) -> None:
        """Write an acknowledgement.

        Raises:
            RagmonError: The broker did not take it in time.
        """
        errors: list[str] = []
        settings = client_settings(self._stream, acks="all", message__timeout__ms=int(WRITTEN_WITHIN * 1000))
        producer = client(kafka.confluent().Producer, settings)
        producer.produce(
            self._stream.chunks,
            encode_entry(ack),
            key=KEY,
            partition=PARTITION,
            on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None,
        )
        left = producer.flush(WRITTEN_WITHIN)
        if left or errors:
            raise RagmonError(errors[0] if errors else f"no answer in {WRITTEN_WITHIN:g} s", hint="is the broker up?")
