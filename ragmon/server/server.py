"""The server: a journal, the thread that writes it, and listeners on three ports (OTLP/HTTP, OTLP/gRPC, admin)."""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Final, Self

from ragmon.config.services import ServeTable, TlsTable
from ragmon.config.settings import Settings
from ragmon.core.errors import ConfigError
from ragmon.core.http_server import HttpServer, shares
from ragmon.core.network import Address, own_names
from ragmon.core.process import read_token
from ragmon.ingest.receiver import receiver_app
from ragmon.scoring.minutes import MINUTE
from ragmon.server.admin import server_admin
from ragmon.server.chunks import LabelProducer, StreamReader, send_ack
from ragmon.server.grpc import GrpcServer
from ragmon.server.journal import Journal
from ragmon.server.pending import REPLY_WAIT, TraceTracker
from ragmon.server.probes import ProbeSupervisor
from ragmon.server.quarantine import Attempts, row_of
from ragmon.server.queries import StatusService
from ragmon.server.reload import ConfigReloader, limits
from ragmon.server.state import Clock, ServerState, recover
from ragmon.server.store import JournalError
from ragmon.server.writer import CORRUPT, JournalWriter
from ragmon.stream.assembler import AssemblyLimits

DRAIN: Final = 5.0
"""Seconds that requests in flight get to finish when the server stops; writing them takes a little longer."""
PROBES_APART: Final = (
    "probes run here, and what a traced application records of them comes over the stream: the two are not joined, so "
    "each probe of a traced application counts twice"
)
_log = logging.getLogger("ragmon.server")
WRITE_PORTS: Final = ("otlp", "grpc")
_SETTINGS: Final = {
    "a token": '`token_file = "/run/secrets/ragmon"`',
    "TLS": '`tls = { cert = "server.pem", key = "server.key" }`, or `tls = "upstream"` where a proxy ends TLS',
}
"""The settings to add for what is missing."""


def check_listen_addresses(serve: ServeTable, *, insecure: bool) -> list[str]:
    """Check that no write port can be used by other machines without a token and TLS.

    A client of a write port (`otlp`, `grpc`) can fill the journal and change the results of gates. With
    `tls = "upstream"` a proxy ends TLS, through which other machines reach even loopback addresses. The admin port only
    reads, and shows content where the token is given: where other machines reach it, it causes a warning.

    Raises:
        ConfigError: A write port has no token or no TLS where it needs them.

    >>> check_listen_addresses(ServeTable(), insecure=False)
    []
    """
    settings = {"a token": serve.token_file is not None, "TLS": serve.tls != "off"}
    missing = [name for name, is_set in settings.items() if not is_set]
    warnings = []
    for name in WRITE_PORTS:
        if missing and not is_private(serve, name):
            address: Address = getattr(serve, name)
            reach = 'behind a proxy (`tls = "upstream"`)' if address.is_loopback else "where other machines reach it,"
            warnings.append(f"`[serve] {name}` listens on {address} {reach} without {' and '.join(missing)}")
    if warnings and not insecure:
        needed = [_SETTINGS[name] for name in missing]
        hint = f"write {' and '.join(needed)}; --insecure does without, in a closed network"
        raise ConfigError("; ".join(warnings), hint=hint)
    if not serve.admin.is_loopback:
        warnings.append(f"`[serve] admin` listens on {serve.admin}: whoever reaches it reads metrics and trace ids")
    return warnings


def is_private(serve: ServeTable, name: str) -> bool:
    """Whether this machine alone can reach a port, as far as the configuration says: no proxy passes requests on."""
    return bool(getattr(serve, name).is_loopback) and serve.tls != "upstream"


class Server:
    """Everything that `ragmon serve` runs.

    Args:
        settings: The configuration.
        insecure: Listen on addresses that anyone could write to, and only warn.
        clock: The clock; default: the clock of this machine.
        assembly_limits: How long traces wait for the rest of their spans.
        reply_wait: Seconds that the reply to a probe waits for the application's own record.
        on_attempts: Called with the journal's file of attempts (what is being worked on) before any work begins.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        insecure: bool = False,
        clock: Clock | None = None,
        assembly_limits: AssemblyLimits | None = None,
        reply_wait: float = REPLY_WAIT,
        on_attempts: Callable[[Attempts], object] | None = None,
    ) -> None:
        serve = settings.serve
        self.warnings = check_listen_addresses(serve, insecure=insecure)
        if serve.reads_stream and settings.probes:
            self.warnings = [*self.warnings, PROBES_APART]
        token = read_token(serve.token_file)
        tls = (serve.tls.cert, serve.tls.key) if isinstance(serve.tls, TlsTable) else None
        self.writer = make_writer(settings, clock or Clock(), assembly_limits, on_attempts)
        self.probing = ProbeSupervisor(self.writer, Path(serve.state_dir), wait=reply_wait)
        self.reloading = ConfigReloader(settings, self.writer, self.probing)
        self.reader = StreamReader(self.writer) if serve.reads_stream else None
        self.writer.send_ack = partial(send_ack, settings.stream) if serve.reads_stream else None
        self.labels = LabelProducer(settings.stream) if serve.reads_stream else None
        if self.labels is not None:
            self.writer.send_labels = self.labels.send
        self.views = StatusService(self.writer, Path(serve.state_dir), self.reloading, self.reader)
        hosts = own_names(serve.hosts)
        receiver = receiver_app(self.writer, token=token, hosts=hosts)
        connection_shares = shares(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.otlp = HttpServer(receiver, serve.otlp, tls=tls, name="otlp", connections=connection_shares.write)
        self.grpc = GrpcServer(self.writer, serve.grpc, token=token, tls=tls, connections=connection_shares.write)
        self.admin = HttpServer(
            server_admin(self.views, hosts, token),
            serve.admin,
            tls=None,
            name="admin",
            connections=connection_shares.admin,
        )

    def start(self) -> Self:
        """Start the writer, the listeners and the probes."""
        self.writer.start()
        try:
            for listener in (self.admin, self.otlp, self.grpc):
                listener.start()
            self.probing.start()
            if self.labels is not None:
                self.labels.start()
            if self.reader is not None:
                self.reader.start()
        except BaseException:
            self.stop()
            raise
        return self

    def addresses(self) -> dict[str, Address]:
        """The address of each listener."""
        return {"otlp": self.otlp.address, "grpc": self.grpc.address, "admin": self.admin.address}

    def stop(self, drain: float = DRAIN) -> None:
        """Stop taking requests, journal the accepted ones, and write a checkpoint."""
        self.views.stopping = True
        self.probing.stop()
        if self.reader is not None:
            self.reader.stop()
        threads = [Thread(target=listener.stop, args=(drain,)) for listener in (self.otlp, self.grpc)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.labels is not None:
            self.labels.stop()
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
    on_attempts: Callable[[Attempts], object] | None = None,
) -> JournalWriter:
    """Open the journal of a state folder, recover the state from it, and make the writer."""
    serve = settings.serve
    journal = Journal(Path(serve.state_dir), limits(serve), clock=clock.now)
    try:
        if on_attempts is not None:
            on_attempts(journal.attempts)
        clock.go_on_from(journal.last()[1])
        try:
            _quarantine(journal)
            server_state, traces = _restored(settings, journal, clock, assembly_limits)
        except JournalError as error:
            if error.reason != CORRUPT:
                raise
            journal.quarantine_and_reset()
            server_state, traces = _restored(settings, journal, clock, assembly_limits)
    except BaseException:
        journal.close()
        raise
    # Alarms have judged those minutes.
    clock.go_on_from(float((server_state.engine.alarms.steps.state.closed + 1) * MINUTE))
    if journal.set_aside is not None:
        _log.error("the journal is damaged and was set aside, everything is counted anew: %s", journal.set_aside)
    return JournalWriter(journal, server_state, traces, clock)


def _quarantine(journal: Journal) -> None:
    """Quarantine journal lines that ended this process twice while they were scored.

    Spans are quarantined later, when their traces are restored.
    """
    for item in journal.attempts.poison():
        row = row_of(item.key)
        if row is None:
            continue
        with journal.begin() as batch:
            moved = batch.quarantine_line(*row, item.line)
        if moved:
            _log.error("a line of row %d is set aside: twice the process ended while it was scored", row[0])


def _restored(
    settings: Settings, journal: Journal, clock: Clock, assembly_limits: AssemblyLimits | None
) -> tuple[ServerState, TraceTracker]:
    server_state, traces = recover(settings, journal, journal.attempts), TraceTracker(settings, assembly_limits)
    traces.restore(journal, clock.now(), journal.attempts)
    traces.resume(journal.last()[1], clock.arrival())
    return server_state, traces
