"""One monitor for all processes of an application on a machine: one of them scores, the others send to it.

The first process leads: it scores and serves the admin port. The others, be they workers of a web server, forked
children or the next process of a reloading server, find it and send it what they capture. When it ends, one of the
others leads with counts of its own, as after any restart.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from threading import Event, Lock
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal
from uuid import uuid4

import msgspec

from ragmon.capture.exporters.base import DroppingExporter
from ragmon.config.settings import Settings
from ragmon.config.types import Address
from ragmon.core import constants
from ragmon.core.errors import GoldError, RagmonError, UnavailableError
from ragmon.core.forks import sleep_if_inherited
from ragmon.core.http_connection import HttpClient
from ragmon.core.log import error_location, warn_once
from ragmon.core.net import split_url
from ragmon.core.record import Label, Record, Totals
from ragmon.export.state import SdkStats
from ragmon.monitor.build import without_broken_gold
from ragmon.monitor.election import SUFFIX, Election, LeaderAddress, sweep
from ragmon.monitor.embedded import Monitor

if TYPE_CHECKING:
    from ragmon.monitor.http.inbox import Batch, Inbox

TIMEOUT: Final = 10.0
"""Seconds in which records must reach the process that scores; then they are lost, and counted."""
_STATS_TIMEOUT: Final = 2.0
"""The same for counts alone: the next counts replace them."""
_PAUSE: Final = 0.05
"""Seconds between two attempts to reach a leader."""
_EVERY: Final = 1.0
"""Seconds between two reports of counts, and between two looks whether there is a leader."""
_PORT_EVERY: Final = 5.0
"""Seconds between two attempts to get a port that another program has."""
_PART_BYTES: Final = 16 << 20
"""Bytes above which records are sent in several batches."""
_ANSWER_BYTES: Final = 4096
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses to connect to, not to listen on
TOO_LARGE: Final = constants.EXPORT_REFUSED
NO_GOLD: Final = "gold metrics are off in this process"


def group(settings: Settings) -> str:
    """The name of the processes that share a monitor: they have one configuration, working directory and admin port.

    With port 0 every process has a monitor of its own, which only its forked children share.
    """
    if settings.serve.admin.port == 0:
        return uuid4().hex
    # The build is left out: while a new one starts, the old one still runs.
    values = sorted((key, repr(value)) for key, value in settings.values.items() if key != "build")
    path = None if settings.path is None else settings.path.resolve()
    try:
        folder = Path.cwd()
    except FileNotFoundError:  # it was removed
        folder = None
    return sha256(repr((folder, path, values, settings.serve, settings.export)).encode()).hexdigest()[:32]


class SharedMonitor:
    """The monitor of this process while it leads, else the way to the leader's: an exporter.

    Args:
        settings: The configuration.
        folder: Where the processes find each other; None: they do not, and forked children count their records as lost.
        strict: An admin port that is in use is an error; otherwise the monitor gets another port until it is free.
        trouble: Why the configuration is not in force as it was written.

    Attributes:
        instance: The unique id of this process.
        own_stats: Reads the SDK statistics of this process.
        monitor: The monitor, while this process leads; it stays readable when the process has stopped.
    """

    def __init__(
        self, settings: Settings, folder: Path | None, *, strict: bool = True, trouble: RagmonError | None = None
    ) -> None:
        self._settings = settings
        self._strict = strict
        self._trouble = trouble
        self._folder = folder
        self._path = None if folder is None else folder / f"{group(settings)}{SUFFIX}"
        self.own_stats: Callable[[], SdkStats] = SdkStats
        self._is_orphan = self._is_child = False
        self._prepare()

    def _prepare(self) -> None:
        """Create the state that belongs to one process."""
        self.instance = uuid4().hex
        self.monitor: Monitor | None = None
        self._election = None if self._path is None else Election(self._path)
        self._inbox: Inbox | None = None
        self._closing = Event()
        self._lock = Lock()
        self._leader: LeaderAddress | None = None
        self._client: HttpClient | None = None
        self._number = 0
        self._counted = self._baseline = SdkStats()
        self._due = self._port_due = self._lead_due = 0.0
        self._is_ending = False

    @property
    def is_leader(self) -> bool:
        """Whether this process scores."""
        return self.monitor is not None

    def start(self) -> None:
        """Lead, unless another process does.

        Raises:
            GoldError: A gold file is broken.
            RagmonError: The admin port is in use, if that is an error.
        """
        if self._folder is not None:
            sweep(self._folder)
        if self._elected():
            self._lead(strict=self._strict)

    def _elected(self) -> bool:
        """Whether this process leads now. A process that cannot be found leads itself."""
        if self._election is None:
            return True
        try:
            return self._election.acquire()
        except OSError as error:
            warn_once(f"processes of this application cannot share a monitor ({self._path}: {error.strerror})")
            self._election = None
            return True

    def _lead(self, *, strict: bool) -> None:
        """Score for all processes; a process that ends scores what is left of its own, and is not served."""
        from ragmon.monitor.http.inbox import Inbox  # noqa: PLC0415 - it loads starlette, as serving does

        monitor = None
        try:
            monitor, token = self._new_monitor(strict=strict), secrets.token_urlsafe(32)
            self._baseline = self._counted
            if not self._is_ending:
                self._inbox = monitor.inbox = Inbox(monitor, token, self._note_others)
                self._serve(monitor, strict=strict)
                self._publish(monitor, token)
        except BaseException:
            if monitor is not None:
                monitor.stop()
            if self._election is not None:
                self._election.release()
            raise
        monitor.captured = self._captured
        self.monitor = monitor

    def _new_monitor(self, *, strict: bool) -> Monitor:
        try:
            monitor = Monitor(self._settings)
        except GoldError as error:
            if strict:
                raise
            warn_once(f"{NO_GOLD}: {error}; {error.hint}" if error.hint else f"{NO_GOLD}: {error}")
            self._trouble = error
            monitor = Monitor(without_broken_gold(self._settings))
        monitor.trouble = self._trouble
        return monitor

    def _serve(self, monitor: Monitor, *, strict: bool) -> None:
        try:
            monitor.start()
        except RagmonError as error:
            if strict:
                raise
            monitor.start(str(Address("127.0.0.1", 0)))
            self._port_due = monotonic() + _PORT_EVERY
            warn_once(
                f"{error}: {error.hint}; capture and scoring go on, and until the port is free the monitor is at "
                f"http://{monitor.address}"
            )

    def _publish(self, monitor: Monitor, token: str) -> None:
        """Say where this process is reached."""
        if self._election is None or monitor.address is None:
            return
        host, _, port = monitor.address.rpartition(":")
        host = _WILDCARDS.get(host.strip("[]"), host.strip("[]"))
        self._leader = LeaderAddress(uuid4().hex, f"http://{Address(host, int(port))}", token)
        self._election.publish(self._leader)

    def _note_others(self) -> None:
        warn_once(
            f"several processes share this monitor: process {os.getpid()} scores what all of them capture, and its "
            "counts begin anew when it ends; for counts that stay use `ragmon serve` and [export] endpoint"
        )

    def _captured(self) -> SdkStats:
        """What all processes captured since this one leads."""
        own = self.own_stats().minus(self._baseline)
        return own if self._inbox is None else own.plus(self._inbox.stats())

    def submit(self, record: Record) -> None:
        """Export a record.

        Raises:
            UnavailableError: It was lost.
        """
        for reason in self.deliver([record]):
            raise UnavailableError(f"a record did not reach the process that scores: {reason}")

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Score records here, or send them to the leader; returns how many were lost, by reason."""
        if self._is_orphan:
            return DroppingExporter().deliver(records)
        reason = self._send(records=list(records))
        if not reason:
            return {}
        if reason == TOO_LARGE and len(records) > 1:
            half = len(records) // 2
            lost = [self.deliver(part) for part in (records[:half], records[half:])]
            return {reason: sum(part.get(reason, 0) for part in lost) for part in lost for reason in part}
        warn_once(
            f"records do not reach the process that scores ({reason}) and are counted as dropped; for several busy "
            "processes use `ragmon serve` and [export] endpoint"
        )
        return {reason: len(records)}

    def report(self, totals: Sequence[Totals]) -> bool:
        """Export counts of all calls; returns whether they arrived."""
        return self._is_orphan or not self._send(totals=list(totals), timeout=_STATS_TIMEOUT)

    def label(self, labels: Sequence[Label]) -> bool:
        """Export ratings of answers; returns whether they arrived."""
        return self._is_orphan or not self._send(labels=list(labels), timeout=_STATS_TIMEOUT)

    def tick(self, asked: bool) -> None:
        """Periodic work: report counts, take over from a leader that ended, take the admin port when it is free.

        Args:
            asked: Do it now.
        """
        now = monotonic()
        if self._is_orphan or not (asked or now >= self._due):
            return
        self._due = now + _EVERY
        if self.monitor is None and not self._take_over():
            stats = self.own_stats()
            if stats != self._counted:
                self._send(stats=stats, timeout=_STATS_TIMEOUT)
        elif self._port_due and now >= self._port_due:
            self._port_due = now + _PORT_EVERY
            self._move()

    def end_of(self, instance: str) -> None:
        """Note that a process of the application died; its losses are in the statistics of this one."""
        if self._inbox is not None:
            self._inbox.end(instance)

    def _move(self) -> None:
        """Serve the monitor at its admin port, if that is free now."""
        from ragmon.core.http_server import bind  # noqa: PLC0415 - as above

        monitor, leader = self.monitor, self._leader
        if monitor is None:
            return
        try:
            bind(self._settings.serve.admin, "admin").close()
        except RagmonError:
            return
        self._port_due = 0.0
        monitor.stop()
        self._serve(monitor, strict=False)
        if leader is not None:
            self._publish(monitor, leader.token)

    def _take_over(self) -> bool:
        """Lead, if no process does; returns whether this process leads now."""
        may_try = not self._closing.is_set() and monotonic() >= self._lead_due
        if self.monitor is not None or not may_try or not self._elected():
            return self.monitor is not None
        try:
            self._lead(strict=False)
        except Exception as error:  # noqa: BLE001 - the configuration may be broken by now; others may be luckier
            self._lead_due = monotonic() + _EVERY
            warn_once(f"this process cannot score for the others: {error_location(error)}")
        return self.monitor is not None

    def _send(
        self,
        *,
        records: Sequence[Record] = (),
        totals: Sequence[Totals] = (),
        labels: Sequence[Label] = (),
        stats: SdkStats | None = None,
        ends: bool = False,
        timeout: float = TIMEOUT,
    ) -> str:
        """Score here, or send to the leader; returns why that failed."""
        with self._lock:
            process, deadline = os.getpid(), monotonic() + timeout
            self._number += 1
            while True:
                sleep_if_inherited(process)
                if self.monitor is not None:
                    return _score(self.monitor, records, totals, labels)
                if self._find():
                    since = None if stats is None else stats.minus(self._baseline)
                    batch = self._batch(list(records), list(totals), list(labels), since, ends=ends)
                    reason = self._post(batch, deadline)
                    if reason is not None:
                        self._counted = self._counted if reason or stats is None else stats
                        return reason
                elif self._take_over():
                    continue
                if monotonic() >= deadline:
                    return constants.EXPORT_TIMEOUT
                if self._closing.wait(_PAUSE):
                    return constants.EXPORT_FAILED

    def _batch(
        self, records: list[Record], totals: list[Totals], labels: list[Label], stats: SdkStats | None, *, ends: bool
    ) -> Batch:
        from ragmon.monitor.http.inbox import Batch  # noqa: PLC0415 - as above

        return Batch(self.instance, self._number, records, totals, labels, stats, ends, self._is_child)

    def _find(self) -> bool:
        """Find the leader; returns whether it can be asked."""
        if self._client is not None:
            return True
        leader = None if self._election is None else self._election.leader()
        if leader is None:
            return False
        if self._leader is None or leader.leader != self._leader.leader:
            self._baseline = self._counted  # what the last leader has counted is not counted again
        self._leader = leader
        self._client = HttpClient(split_url(leader.url), _ANSWER_BYTES)
        return True

    def _post(self, batch: Batch, deadline: float) -> str | None:
        """Send a batch; returns "" if it was counted, why it never will be, or None if another attempt may succeed."""
        from ragmon.monitor.http.inbox import TYPE  # noqa: PLC0415 - as above

        assert self._client is not None  # noqa: S101 - for the type checker
        assert self._leader is not None  # noqa: S101 - as above
        try:
            body = msgspec.msgpack.encode(batch)
        except (UnicodeEncodeError, OverflowError, TypeError):
            return TOO_LARGE
        if len(body) > _PART_BYTES and len(batch.records) > 1:
            return TOO_LARGE
        headers = {"Content-Type": TYPE, "Authorization": f"Bearer {self._leader.token}"}
        try:
            status = self._exchange(self._client, body, deadline, headers)
        except TimeoutError:
            self._disconnect()
            return None
        except (OSError, HTTPException):  # it has ended
            self._disconnect()
            self._take_over()
            return None
        if status == HTTPStatus.NO_CONTENT:
            return ""
        if status in (HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE):
            return TOO_LARGE
        self._disconnect()  # another program has the leader's old port, or the leader is being stopped
        return None

    @staticmethod
    def _exchange(client: HttpClient, body: bytes, deadline: float, headers: Mapping[str, str]) -> int:
        """Send a batch; returns the status of the response. Raises as `HttpClient.exchange` does."""
        from ragmon.monitor.http.inbox import PATH  # noqa: PLC0415 - as above

        process = os.getpid()
        try:
            return client.exchange("POST", PATH, deadline, body=body, headers=headers).status
        finally:
            sleep_if_inherited(process)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def expect_end(self) -> None:
        """Note that this process ends: it does not begin to serve others."""
        self._is_ending = True

    def close(self, *, with_stats: bool) -> None:
        """Send the last counts, and stop serving; another process leads from now on.

        Args:
            with_stats: Nobody else will report the counts of this process.
        """
        if self.monitor is None and with_stats and not self._is_orphan and self._leader is not None:
            self._send(stats=self.own_stats(), ends=True, timeout=_STATS_TIMEOUT)
        self._closing.set()
        if self._client is not None:
            self._client.abort()  # a thread may still wait for an answer
        if self.monitor is not None:
            self.monitor.stop()
        if self._election is not None:
            self._election.release()

    def reset_after_fork(self) -> None:
        """Reset in a forked child: the parent leads, or its leader does; the child sends to it."""
        self._is_orphan = self._election is None
        self._is_child = self._is_child or self.monitor is not None
        if self._election is not None:
            self._election.leave_to_parent()
        if self._client is not None:
            self._inherited = self._client  # never finalised: the parent's threads may have held its locks
            with suppress(OSError):
                self._client.detach_after_fork()
        self._prepare()


def _score(
    monitor: Monitor, records: Sequence[Record], totals: Sequence[Totals], labels: Sequence[Label]
) -> Literal[""]:
    """Count everything in the monitor of this process; nothing is lost."""
    for record in records:
        monitor.submit(record)
    monitor.report(totals)
    monitor.label(labels)
    return ""
