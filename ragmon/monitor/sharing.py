"""One monitor for all processes of an application on a machine: one of them scores, the others send to it.

The first process leads: it scores and serves the admin port, on which it also receives OTLP from processes that can
read its token. The others (workers of a web server, forked children, the next process of a reloading server) export to
it as to a server. When the leader ends, another process leads with counts of its own, as after any restart.
"""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from threading import Event
from time import monotonic, time
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from ragmon.capture.exporters import DroppingExporter
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import GoldError, RagmonError, error_location, warn_once
from ragmon.core.network import Address
from ragmon.core.process import importing, sleep_if_inherited
from ragmon.core.record import Label, Record, Totals
from ragmon.export.status import SdkStats
from ragmon.ingest.gold import without_broken_gold
from ragmon.monitor.embedded import SUFFIX, Election, LeaderAddress, Monitor, sweep

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from ragmon.capture.otlp_exporter import OtlpExporter
    from ragmon.monitor.producers import ProcessReceiver

TIMEOUT: Final = 10.0
"""Seconds in which records must reach the process that scores; then they are lost, and counted."""
_ATTEMPT: Final = 2.0  # seconds that one attempt to send may take
_PAUSE: Final = 0.05  # seconds between two attempts to find a leader
_EVERY: Final = 1.0  # seconds between two checks for a leader
_PORT_EVERY: Final = 5.0  # seconds between two attempts to get a port that another program has
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - addresses to connect to, not to listen on
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
    """An exporter to the monitor of this process while it leads, else to the leader's.

    Args:
        folder: Where the processes find each other; None: each is alone, and forked children count records as lost.
        strict: An admin port that is in use is an error; otherwise the monitor gets another port until it is free.
        trouble: Why the settings differ from the configuration as it was written.

    Attributes:
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
        self.instance = uuid4().hex
        self.monitor: Monitor | None = None
        self._election = None if self._path is None else Election(self._path)
        self._receiver: ProcessReceiver | None = None
        self._closing = Event()
        self._leader: LeaderAddress | None = None
        self._exporter: OtlpExporter | None = None
        self._due = self._port_due = self._lead_due = 0.0
        self._is_ending = False

    def start(self) -> None:
        """Lead, unless another process does."""
        if self._folder is not None:
            sweep(self._folder)
        if self._elected():
            self._lead(strict=self._strict)

    def _elected(self) -> bool:
        if self._election is None:
            return True
        try:
            return self._election.acquire()
        except OSError as error:
            warn_once(f"processes of this application cannot share a monitor ({self._path}: {error.strerror})")
            self._election = None
            return True

    def _lead(self, *, strict: bool) -> None:
        # A process that ends scores the rest of its own records, and serves nobody.
        monitor: Monitor | None = None
        token, began, before = secrets.token_urlsafe(32), time(), self.own_stats()
        authorization = f"Bearer {token}".encode()

        def with_receiver(app: ASGIApp) -> ASGIApp:
            """The application of the admin port, and beside it a receiver of requests with the token."""

            async def answer(scope: Scope, receive: Receive, send: Send) -> None:
                given = dict(scope["headers"]).get(b"authorization", b"")
                if not hmac.compare_digest(given, authorization):
                    await app(scope, receive, send)
                    return
                if self._receiver is None:
                    assert monitor is not None  # noqa: S101 - it serves the port
                    with importing:  # protobuf, which an application of one process never needs
                        from ragmon.monitor.producers import ProcessReceiver  # noqa: PLC0415 - as said

                    self._receiver = ProcessReceiver(monitor, token, began)
                await self._receiver.app(scope, receive, send)

            return answer

        def captured() -> SdkStats:
            """The statistics of all processes since this one leads."""
            own = self.own_stats().minus(before)
            return own if self._receiver is None else own.plus(self._receiver.stats())

        try:
            try:
                monitor = Monitor(self._settings)
            except GoldError as error:
                if strict:
                    raise
                warn_once(f"{NO_GOLD}: {error}; {error.hint}" if error.hint else f"{NO_GOLD}: {error}")
                self._trouble = error
                monitor = Monitor(without_broken_gold(self._settings))
            monitor.trouble = self._trouble
            if not self._is_ending:
                monitor.beside = with_receiver
                self._serve(monitor, strict=strict)
                self._publish(monitor, token)
        except BaseException:
            if monitor is not None:
                monitor.stop()
            if self._election is not None:
                self._election.release()
            raise
        monitor.captured = captured
        self.monitor = monitor
        self._disconnect()

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
        if self._election is None or monitor.address is None:
            return
        host, _, port = monitor.address.rpartition(":")
        host = _WILDCARDS.get(host.strip("[]"), host.strip("[]"))
        self._leader = LeaderAddress(uuid4().hex, f"http://{Address(host, int(port))}", token)
        self._election.publish(self._leader)

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Score records here, or send them to the leader; returns how many were lost, by reason."""
        if self._is_orphan:
            return DroppingExporter().deliver(records)
        process, deadline = os.getpid(), monotonic() + TIMEOUT
        lost: Mapping[str, int] = {constants.EXPORT_TIMEOUT: len(records)}
        while True:
            target = self._target()
            if isinstance(target, Monitor):
                for record in records:
                    target.submit(record)
                return {}
            if target is not None:
                leader = self._leader
                lost = target.deliver(records)
                sleep_if_inherited(process)
                if not lost:
                    return lost
                self._disconnect()
                # The counts of a leader that has ended are gone, so the next one may count all these records.
                if not self._take_over() and self._election is not None and self._election.leader() == leader:
                    break
            if monotonic() >= deadline or self._closing.wait(_PAUSE):
                break
        warn_once(
            f"records do not reach the process that scores ({', '.join(lost)}) and are counted as dropped; for several "
            "busy processes use `ragmon serve` and [export] endpoint"
        )
        return lost

    def report(self, totals: Sequence[Totals]) -> bool:
        """Export counts of all calls; returns whether they arrived."""
        target = self._target()
        return self._is_orphan or (target is not None and target.report(totals))

    def label(self, labels: Sequence[Label]) -> bool:
        """Export ratings of answers; returns whether they arrived."""
        target = self._target()
        return self._is_orphan or (target is not None and target.label(labels))

    def tick(self, asked: bool) -> None:
        """Take over from a leader that ended, and take the admin port when it is free; now if asked."""
        now = monotonic()
        if self._is_orphan or not (asked or now >= self._due):
            return
        self._due = now + _EVERY
        monitor, leader = self.monitor, self._leader
        if monitor is None:
            self._take_over()
        elif self._port_due and now >= self._port_due:
            self._port_due = now + _PORT_EVERY
            from ragmon.core.http_server import bind  # noqa: PLC0415 - loads uvicorn

            try:
                bind(self._settings.serve.admin, "admin").close()
            except RagmonError:
                return
            self._port_due = 0.0
            monitor.stop()
            self._serve(monitor, strict=False)
            if leader is not None:
                self._publish(monitor, leader.token)

    def end_of(self, instance: str) -> None:
        """Note that a process of the application died; its losses are in the statistics of this one."""
        if self._receiver is not None:
            self._receiver.end_of(instance)

    def _take_over(self) -> bool:
        may_try = not self._closing.is_set() and monotonic() >= self._lead_due
        if self.monitor is not None or not may_try or not self._elected():
            return self.monitor is not None
        try:
            self._lead(strict=False)
        except Exception as error:  # noqa: BLE001 - the configuration may be broken by now; others may be luckier
            self._lead_due = monotonic() + _EVERY
            warn_once(f"this process cannot score for the others: {error_location(error)}")
        return self.monitor is not None

    def _target(self) -> Monitor | OtlpExporter | None:
        if self._is_orphan or self.monitor is not None or self._take_over():
            return self.monitor
        leader = None if self._election is None else self._election.leader()
        if leader is None:
            return None
        if self._exporter is None or leader != self._leader:
            with importing:
                # Protobuf takes long to load.
                from ragmon.capture.otlp_exporter import OtlpExporter, OtlpSession  # noqa: PLC0415 - as above

            self._disconnect()
            resource = {"service.name": self._settings.pipeline, "service.instance.id": self.instance}
            # A leader that has ended needs no warning: the next leader gets the rest.
            session = OtlpSession(leader.url, token=leader.token, timeout=_ATTEMPT, warns=False)
            self._exporter = OtlpExporter(session, resource=resource)
            self._leader = leader
            if not self._is_child:
                warn_once(
                    f"several processes share this monitor: another one scores the calls of process {os.getpid()}, and "
                    "counts start from zero when it ends; for counts that stay use `ragmon serve` and [export] endpoint"
                )
        return self._exporter

    def _disconnect(self) -> None:
        if self._exporter is not None:
            self._exporter.close()
            self._exporter = None

    def expect_end(self) -> None:
        """Note that this process ends: it does not begin to serve others."""
        self._is_ending = True

    def close(self) -> None:
        """Send no more, and stop serving; another process leads from now on."""
        self._closing.set()
        self._disconnect()
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
        if self._exporter is not None:
            self._exporter.reset_after_fork()
        self._inherited = self._exporter  # never finalised: the parent's threads may have held its locks
        self._prepare()
