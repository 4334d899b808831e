"""The server: a journal, the thread that writes it, and doors on three ports."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final, Self

from ragmon.config.services import TlsTable
from ragmon.config.settings import Settings
from ragmon.config.types import Address
from ragmon.core.net import own_names
from ragmon.scoring.minutes import STEP
from ragmon.server.api.app import admin
from ragmon.server.api.status import StatusService
from ragmon.server.journal import Journal, JournalError
from ragmon.server.journal.quarantine import Attempts, row_of
from ragmon.server.pipeline.assembler import AssemblyLimits
from ragmon.server.pipeline.clock import Clock
from ragmon.server.pipeline.probe_replies import WAIT
from ragmon.server.pipeline.recovery import recover
from ragmon.server.pipeline.state import ServerState
from ragmon.server.pipeline.trace_buffer import TraceTracker
from ragmon.server.pipeline.writer import CORRUPT, JournalWriter
from ragmon.server.probes import ProbeSupervisor
from ragmon.server.receiver import security
from ragmon.server.receiver.acceptor import shares
from ragmon.server.receiver.grpc import GrpcServer
from ragmon.server.receiver.http import receiver_app
from ragmon.server.receiver.listener import HttpServer
from ragmon.server.reload import ConfigReloader, limits

DRAIN: Final = 5.0
"""Seconds that requests in flight may take once the server is to stop: what it took is put on disk in some more."""
_log = logging.getLogger("ragmon.server")


class Server:
    """Everything `ragmon serve` runs.

    Args:
        settings: The configuration.
        insecure: Listen where strangers could write, and only warn.
        clock: The time; default: this machine's.
        assembly_limits: How long traces wait for the rest of their spans.
        reply_wait: Seconds an answer to a probe waits for the application's own record.
        watch: Is told where it is noted what is being worked on, before anything is.

    Attributes:
        warnings: What is risky about where it listens.
        writer: Where requests are handed in.
        views: What it shows.
        reloading: Keeps the configuration in step with its file.
        probing: Runs its probes.
        otlp, grpc, admin: Its doors.

    Raises:
        ConfigError: It would listen where strangers could write.
        RagmonError: The state folder is another server's, cannot be written, or a newer ragmon wrote it.
        GoldError: A gold file is broken.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        insecure: bool = False,
        clock: Clock | None = None,
        assembly_limits: AssemblyLimits | None = None,
        reply_wait: float = WAIT,
        watch: Callable[[Attempts], object] | None = None,
    ) -> None:
        serve = settings.serve
        self.warnings = security.check_listen_addresses(serve, insecure=insecure)
        token = security.read_token(serve)
        tls = (serve.tls.cert, serve.tls.key) if isinstance(serve.tls, TlsTable) else None
        self.writer = make_writer(settings, clock or Clock(), assembly_limits, watch)
        self.probing = ProbeSupervisor(self.writer, Path(serve.state_dir), wait=reply_wait)
        self.reloading = ConfigReloader(settings, self.writer, self.probing)
        self.views = StatusService(self.writer, Path(serve.state_dir), self.reloading)
        hosts = own_names(serve.hosts)
        write = receiver_app(self.writer, token=token, hosts=hosts)
        most = shares(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.otlp = HttpServer(
            write, serve.otlp, tls=tls, name="otlp", connections=most.write, refused=self.writer.refuse
        )
        self.grpc = GrpcServer(self.writer, serve.grpc, token=token, tls=tls, connections=most.write)
        self.admin = HttpServer(admin(self.views, hosts), serve.admin, tls=None, name="admin", connections=most.admin)

    def start(self) -> Self:
        """Take requests.

        Raises:
            RagmonError: A port cannot be opened.
        """
        self.writer.start()
        try:
            for door in (self.admin, self.otlp, self.grpc):
                door.start()
            self.probing.start()
        except BaseException:
            self.stop()
            raise
        return self

    def addresses(self) -> dict[str, Address]:
        """Where each door listens."""
        return {"otlp": self.otlp.address, "grpc": self.grpc.address, "admin": self.admin.address}

    def stop(self, drain: float = DRAIN) -> None:
        """Take no more requests, put what came on disk, and write a checkpoint.

        Args:
            drain: Seconds that requests in flight have to be answered.
        """
        self.views.stopping = True
        self.probing.stop()
        doors = [Thread(target=door.stop, args=(drain,)) for door in (self.otlp, self.grpc)]
        for door in doors:
            door.start()
        for door in doors:
            door.join()
        self.writer.stop()
        self.admin.stop(0.0)
        self.writer.journal.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def make_writer(
    settings: Settings,
    clock: Clock,
    assembly_limits: AssemblyLimits | None,
    watch: Callable[[Attempts], object] | None = None,
) -> JournalWriter:
    """The keeper of a state folder, as far as its journal goes."""
    serve = settings.serve
    journal = Journal(Path(serve.state_dir), limits(serve), clock=clock.now)
    try:
        if watch is not None:
            watch(journal.attempts)
        clock.go_on_from(journal.last()[1])
        try:
            _quarantine(journal)
            server_state, waiting = _restored(settings, journal, clock.now(), assembly_limits)
        except JournalError as error:
            if error.reason != CORRUPT:
                raise
            journal.quarantine_and_reset()
            server_state, waiting = _restored(settings, journal, clock.now(), assembly_limits)
    except BaseException:
        journal.close()
        raise
    clock.go_on_from(float((server_state.engine.alarms.steps.closed + 1) * STEP))  # those minutes were judged
    if journal.set_aside is not None:
        _log.error("the journal is damaged and was set aside, everything is counted anew: %s", journal.set_aside)
    return JournalWriter(journal, server_state, waiting, clock)


def _quarantine(journal: Journal) -> None:
    """Set lines aside that ended this process twice while they were scored; spans are when their traces wait again.

    Raises:
        JournalError: It cannot be read or written.
    """
    for item in journal.attempts.poison():
        row = row_of(item.key)
        if row is None:
            continue
        with journal.begin() as batch:
            found = batch.quarantine_line(*row, item.place)
        if found:
            _log.error("a line of row %d is set aside: twice the process ended while it was scored", row[0])


def _restored(
    settings: Settings, journal: Journal, now: float, assembly_limits: AssemblyLimits | None
) -> tuple[ServerState, TraceTracker]:
    """Where the server stands after what is in the journal, and the traces that wait.

    Raises:
        JournalError: It cannot be read.
    """
    server_state, waiting = recover(settings, journal, journal.attempts), TraceTracker(settings, assembly_limits)
    waiting.restore(journal, now, journal.attempts)
    return server_state, waiting
