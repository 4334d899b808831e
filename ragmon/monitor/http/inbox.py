"""What the other processes of an application send to the one that scores: records, counts of calls, labels.

The admin port takes it under a path of its own, with a token that only processes of the same user can read. To everyone
else the path does not exist.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Lock
from typing import Final, Protocol

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ragmon.core.http_server import LIMITS, HTTPError, check_size, read_body
from ragmon.core.log import log_error
from ragmon.core.record import Label, Record, Totals
from ragmon.export.state import SdkStats, StageCounters

PATH: Final = "/v1/batch"
MOST_BYTES: Final = 64 << 20
"""Maximum bytes of a batch; a call that keeps more alive is not queued."""
TYPE: Final = "application/vnd.msgpack"


class Batch(msgspec.Struct, omit_defaults=True):
    """What one process sends at once.

    Attributes:
        sender: The process.
        number: Counts the batches of the process from 1; one that is sent twice is counted once.
        records, totals, labels: What it captured, as it would export it.
        stats: What it captured since it sends to this leader; the latest counts.
        ends: The process ends, and sends no more.
        is_child: A forked child of the process that scores, or one of its children.
    """

    sender: str
    number: int
    records: list[Record] = []
    totals: list[Totals] = []
    labels: list[Label] = []
    stats: SdkStats | None = None
    ends: bool = False
    is_child: bool = False


class Receiver(Protocol):
    """What takes the content of batches: a `Monitor`."""

    def submit(self, record: Record) -> None:
        """Score a record."""

    def report(self, totals: Sequence[Totals]) -> bool:
        """Count a producer's totals."""

    def label(self, labels: Sequence[Label]) -> bool:
        """Process labels."""


class Inbox:
    """Takes the batches of other processes.

    Args:
        receiver: Takes their content.
        token: The token that senders show.
        stranger: Called when a batch arrives that is not of a child of this process.
    """

    def __init__(self, receiver: Receiver, token: str, stranger: Callable[[], object]) -> None:
        self._receiver = receiver
        self._authorization = f"Bearer {token}".encode()
        self._stranger = stranger
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._delivered: Counter[str] = Counter()
        self._stats: dict[str, SdkStats] = {}
        self._ended = SdkStats()
        self._pool = ThreadPoolExecutor(1, "ragmon-inbox")
        self._decode = msgspec.msgpack.Decoder(Batch).decode

    def stats(self) -> SdkStats:
        """What the other processes captured, together."""
        with self._lock:
            total = self._ended
            for stats in self._stats.values():
                total = total.plus(stats)
            return total

    def take(self, batch: Batch) -> None:
        """Count a batch, once."""
        with self._lock:
            if not batch.is_child:
                self._stranger()
            if batch.number <= self._numbers.get(batch.sender, 0):
                return
            self._numbers[batch.sender] = batch.number
            for record in batch.records:
                self._receiver.submit(record)
            self._delivered[batch.sender] += len(batch.records)
            self._receiver.report(batch.totals)
            self._receiver.label(batch.labels)
            if batch.stats is not None:
                self._stats[batch.sender] = batch.stats
            if batch.ends:
                self._ended = self._ended.plus(self._stats.pop(batch.sender, SdkStats()))

    def end(self, sender: str) -> None:
        """Note that a process died. Whoever says so counts what it lost, so only what it delivered here stays."""
        with self._lock:
            stats = self._stats.pop(sender, None)
            if stats is not None:
                delivered = self._delivered[sender]
                self._ended = self._ended.plus(replace(stats, counters=StageCounters(delivered, delivered)))

    def beside(self, app: ASGIApp) -> ASGIApp:
        """An application that answers the path of the batches, and leaves everything else to another one."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["path"] != PATH or not self._is_authorised(scope):
                await app(scope, receive, send)
                return
            await (await self._answer(Request(scope, receive)))(scope, receive, send)

        return answer

    def _is_authorised(self, scope: Scope) -> bool:
        given = dict(scope["headers"]).get(b"authorization", b"")
        return scope["method"] == "POST" and hmac.compare_digest(given, self._authorization)

    async def _answer(self, request: Request) -> Response:
        try:
            check_size(request.headers, MOST_BYTES)
            body = await read_body(request, MOST_BYTES, LIMITS.deadline)
            batch = self._decode(body)
            taken = asyncio.get_running_loop().run_in_executor(self._pool, self.take, batch)
        except RuntimeError:  # the interpreter ends and starts no thread
            return Response(status_code=503)
        except HTTPError as error:
            return Response(status_code=error.status)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return Response(status_code=400)
        except ClientDisconnect:
            return Response()  # nobody reads it
        try:
            await taken
        except Exception as error:  # noqa: BLE001 - the sender tries again
            log_error("a batch of another process could not be counted", error)
            return Response(status_code=503)
        return Response(status_code=204)
