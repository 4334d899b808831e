"""Reading the chunks of other servers: one thread a server, which asks for what comes after what was added last.

The journal of this server holds the chunks, so it can be replayed, and a server that is away has no effect but that the
time of alarms stands still until it is back.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping
from http.client import HTTPException
from threading import Event, Thread
from time import monotonic
from typing import Final
from urllib.parse import urlencode

import msgspec

from ragmon.core.errors import shorten
from ragmon.core.escaping import printable
from ragmon.core.http_client import HttpClient
from ragmon.core.log import error_location
from ragmon.core.net import split_url
from ragmon.core.record import ChunkEntry
from ragmon.monitor.http.admin import CHUNKS_PATH
from ragmon.monitor.http.requests import RejectedError
from ragmon.server.pipeline.writer import JournalWriter
from ragmon.stream.chunk import Chunk, ChunkError

EVERY: Final = 1.0
"""Seconds between two requests to a server that has nothing more."""
LONGEST_PAUSE: Final = 10.0
"""Seconds after which a server that does not answer is asked again, at most."""
REQUEST_TIMEOUT: Final = 60.0
"""Seconds for one request: the other server counts up to some ten thousand records for it."""
LARGEST: Final = 256 << 20
"""Bytes of an answer."""
JOIN: Final = 5.0
_log = logging.getLogger("ragmon.server")


class _Answer(msgspec.Struct):
    """The answer to a request for chunks."""

    chunks: list[str]
    more: bool


class _Refusal(msgspec.Struct):
    """The answer of a server that gives none."""

    error: str = ""
    hint: str = ""


class ShardError(Exception):
    """A server gave no chunks; the message says why."""


class ShardReader:
    """Adds up what one server counts.

    Args:
        url: Its admin port, which is also the name of its partition.
        writer: The journal writer of this server.
        token: The token of its write ports; None where it has none.

    Attributes:
        trouble: Why nothing comes of it; "" where something does.
    """

    def __init__(self, url: str, writer: JournalWriter, token: str | None) -> None:
        self.url, self.trouble = url, ""
        self._log: str | None = None
        self._writer = writer
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._client = HttpClient(split_url(url), LARGEST)
        self._path = split_url(url).path.rstrip("/") + CHUNKS_PATH
        self._stopping = Event()
        self._thread = Thread(target=self._work, name="ragmon-shard", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop reading, without waiting for an answer that is under way."""
        self._stopping.set()
        self._client.abort()
        if self._thread.is_alive():
            self._thread.join(JOIN)

    def _work(self) -> None:
        pause = EVERY
        while not self._stopping.wait(pause):
            try:
                pause = 0.0 if self._read() else EVERY
                self._note("")
            except (ShardError, ChunkError, OSError, HTTPException, RejectedError) as error:
                pause = min(LONGEST_PAUSE, max(EVERY, 2 * pause))
                self._note(str(error) or type(error).__name__)
            except Exception as error:  # noqa: BLE001 - the thread must survive: nothing else asks this server
                pause = LONGEST_PAUSE
                self._note(f"its answer could not be used ({error_location(error)})")
        self._client.close()

    def _note(self, trouble: str) -> None:
        """Log once when nothing comes, and when something comes again."""
        if trouble and not self.trouble and not self._stopping.is_set():
            _log.warning("%s gives no chunks: %s", printable(self.url), printable(trouble))
        elif self.trouble and not trouble:
            _log.info("%s gives chunks again", printable(self.url))
        self.trouble = trouble

    def _read(self) -> bool:
        """Add what came since the last chunk; returns whether there is more.

        Raises:
            ShardError: The server answers that it gives none.
            OSError: It cannot be reached, or not in time.
        """
        place = self._place()
        target = f"{self._path}?{urlencode(place)}"
        response = self._client.exchange("GET", target, monotonic() + REQUEST_TIMEOUT, headers=self._headers)
        if response.is_cut:
            raise ShardError(f"its answer is longer than {LARGEST} bytes")
        if response.status != 200:
            raise ShardError(_reason(response.status, response.body))
        answer = msgspec.json.decode(response.body, type=_Answer)
        bodies = [base64.b64decode(chunk) for chunk in answer.chunks]
        for body in bodies:
            self._follow(Chunk.load(body).log)  # what is no chunk does not get into the journal
            self._writer.chunk(ChunkEntry(body)).result()
        if bodies and self._place() == place:
            adder = self._writer.server_state.adder
            raise ShardError(f"its chunks are refused: {'' if adder is None else adder.refusal}")
        return answer.more and bool(bodies)

    def _follow(self, log: str) -> None:
        """Go on with the log of a chunk.

        Raises:
            ShardError: It was added before, and then another one: the answer begins with its first row, so it is asked
                again from where it was added.
        """
        with self._writer.lock:
            adder = self._writer.server_state.adder
            asked = None if adder is None else adder.position(self.url, self._log)
            known = None if adder is None else adder.position(self.url, log)
        self._log = log
        if asked is not None and known is not None and asked.log != log:
            raise ShardError("its journal is one that another had replaced: do two servers answer at this address?")

    def _place(self) -> Mapping[str, str]:
        """From where to ask: after the last chunk that was added."""
        place = {"part": self.url}
        with self._writer.lock:
            adder = self._writer.server_state.adder
            position = None if adder is None else adder.position(self.url, self._log)
            if position is not None:
                base, low = max(1, position.upto), max(1, position.low)
                place |= {"log": position.log, "base": str(base), "low": str(low), "until": repr(position.until)}
        return place


def _reason(status: int, body: bytes) -> str:
    try:
        refusal = msgspec.json.decode(body, type=_Refusal)
    except msgspec.MsgspecError:
        return f"it answers {status}"
    return f"it answers {status}: {shorten(refusal.error)}" + (f" ({shorten(refusal.hint)})" if refusal.hint else "")


class ShardReaders:
    """Reads every server that `[serve] of` names.

    Args:
        writer: The journal writer of this server.
        token: The token of the write ports, here and there; None where there is none.
    """

    def __init__(self, writer: JournalWriter, token: str | None) -> None:
        self._readers = [ShardReader(url, writer, token) for url in writer.server_state.engine.settings.serve.of]

    def start(self) -> None:
        """Start reading."""
        for reader in self._readers:
            reader.start()

    def stop(self) -> None:
        """Stop reading."""
        for reader in self._readers:
            reader.stop()

    def troubles(self) -> dict[str, str]:
        """Why nothing comes of a server, by its address."""
        return {reader.url: reader.trouble for reader in self._readers if reader.trouble}
