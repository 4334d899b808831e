"""The server: a journal, the thread that writes it, and listeners on three ports (OTLP/HTTP, OTLP/gRPC, admin)."""

from __future__ import annotations

import logging
import resource
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Final, Self

from ragmon.alarms.plan import AlarmRule
from ragmon.config.load import chain, load
from ragmon.config.services import ServeTable, TlsTable
from ragmon.config.settings import Settings
from ragmon.core.constants import BUCKET_SECONDS, HOUR
from ragmon.core.errors import ConfigError, GoldError, RagmonError, log_error
from ragmon.core.http_server import HttpServer, shares
from ragmon.core.network import Address, own_names
from ragmon.core.process import read_token
from ragmon.export.status import MonitorSnapshot, ServerFindings, ServerStats, StatusFinding, StreamStats, status
from ragmon.ingest.receiver import ReceiverApp
from ragmon.monitor.admin import AdminView, admin_app
from ragmon.monitor.engine import MonitorHistory
from ragmon.scoring.minutes import MINUTE
from ragmon.server.chunks import LabelProducer, StreamReader, send_ack
from ragmon.server.grpc import GrpcServer
from ragmon.server.journal import Journal, RetentionLimits
from ragmon.server.pending import REPLY_WAIT, TraceTracker
from ragmon.server.probes import ProbeSupervisor
from ragmon.server.process import Attempts, row_of
from ragmon.server.queries import QueryService
from ragmon.server.state import Clock, ServerState, recover
from ragmon.server.store import JournalError, JournalReader
from ragmon.server.writer import CORRUPT, UNCOUNTED, JournalWriter
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
FIXED: Final = ("otlp", "grpc", "admin", "hosts", "token_file", "tls", "state_dir", "from")
"""Keys of `[serve]` that take effect only when the server is restarted."""
_TIMES: Final = 100
"""Reloads whose time is kept."""
Signature = dict[Path, tuple[str, int, int, int] | None]


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


class ConfigReloader:
    """Reloads the configuration when one of its files changes.

    A file's signature includes the path that its name resolves to, so a swapped symbolic link counts as a change:
    Kubernetes updates a ConfigMap that way.

    Attributes:
        broken: Why the configuration on disk is not in force, without any text of the gold; "" where it is in force.
        since: Since when it is not in force, seconds since the epoch; None where it is.
        hint: How to correct it.
        times: When another configuration came into force, seconds since the epoch; the latest ones.
    """

    def __init__(self, settings: Settings, writer: JournalWriter, probing: ProbeSupervisor) -> None:
        self.broken = self.hint = ""
        self.since: float | None = None
        self._settings = self._last_read = settings
        self._writer = writer
        self.probing = probing
        self.times: deque[float] = deque(maxlen=_TIMES)
        self._loaded = self._last_polled = self._before = self._signature()

    def poll(self) -> bool:
        """Reload the configuration if a file changed and is no longer being written; returns whether it reloaded.

        A change since the previous poll waits for the next poll: half a written file may be valid and would be
        accepted.
        """
        signature = self._signature()
        previous, self._last_polled = self._last_polled, signature
        if signature == self._loaded or signature != previous:
            return False
        self.reload()
        return True

    def reload(self) -> bool:
        """Reload the configuration; returns whether it is in force now."""
        self._before = self._signature()
        try:
            try:
                settings = self._last_read = load(self._settings.path)
                self._before = self._signature() | self._before  # before the gold is read: it may change
                server_state = ServerState(self._with_fixed_source(settings))
                self._writer.run_between_rows(lambda: self._apply(server_state)).result()
                self.probing.configure(settings)
            except RagmonError as error:
                self._refuse(error)
                return False
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin is third-party code and may raise anything
                log_error("the configuration cannot be applied", error)
                self._refuse(RagmonError(f"{type(error).__name__}", hint="the log says where"))
                return False
            for key in FIXED:
                if getattr(settings.serve, key) != getattr(self._settings.serve, key):
                    _log.warning("`[serve] %s` changed; it takes effect when the server is restarted", key)
            self.broken, self.since, self.hint = "", None, ""
            self._settings = self._with_fixed_source(settings)
            self.times.append(self._writer.clock.now())
            _log.info("the configuration was read again")
            return True
        finally:
            self._loaded = {path: self._before.get(path, signature) for path, signature in self._signature().items()}

    def _with_fixed_source(self, settings: Settings) -> Settings:
        """The settings with what this server counts as it was at the start: its reader is that of then."""
        kept = {"from": getattr(self._settings.serve, "from")}
        return replace(settings, serve=settings.serve.model_copy(update=kept))

    def _refuse(self, error: RagmonError) -> None:
        message = str(error)
        if isinstance(error, GoldError):  # its own message has text of the gold
            location = error.path if error.line is None else f"{error.path}:{error.line}"
            message = f"{location}: the gold file is refused, the log says why"
        self.broken, self.hint = f"the configuration on disk is not in force: {message}", error.hint
        self.since = self.since or self._writer.clock.now()
        _log.error("the configuration on disk is not in force: %s (%s)", error, error.hint)

    def _apply(self, server_state: ServerState) -> None:
        writer = self._writer
        with writer.lock:
            old_engine = writer.server_state.engine
            writer.replace_state(server_state)
            writer.journal.limits = limits(server_state.engine.settings.serve)
            new = server_state.engine
            for name in {*old_engine.settings.pipelines, *new.settings.pipelines, *new.alarms.pipelines}:
                if _reading(old_engine.settings, name) != _reading(new.settings, name):
                    new.gates.reread[name] = writer.clock.now()
            # Silence the alarms whose rule changed: the evidence gathered so far says nothing about the new rule.
            for name, pipeline in server_state.engine.alarms.pipelines.items():
                old_rules = old_engine.alarms.pipelines[name].rules
                for alert, rule in pipeline.rules.items():
                    if alert in old_rules and _rule_identity(rule) != _rule_identity(old_rules[alert]):
                        server_state.engine.restart_alarm(name, alert, "it guards something else now")

    def _signature(self) -> Signature:
        found: Signature = {}
        for path in (*_files(self._settings), *_files(self._last_read)):
            found[path] = None
            with suppress(OSError, RuntimeError, ValueError):
                real = path.resolve()
                info = real.stat()
                found[path] = str(real), info.st_ino, info.st_mtime_ns, info.st_size
        return found


def limits(serve: ServeTable) -> RetentionLimits:
    """The retention limits of the journal."""
    return RetentionLimits(retention=float(serve.retention), size=int(serve.max_size))


def _reading(settings: Settings, pipeline: str) -> tuple[object, ...]:
    """What decides how a pipeline's records are read, and so which scores are known."""
    own = settings.of(pipeline)
    return own.capture, own.refusal, own.citations, settings.gold


def _rule_identity(rule: AlarmRule) -> AlarmRule:
    """What an alarm watches; severity and threshold may change while it fires."""
    return replace(rule, severity="", threshold=0.0)


def _files(settings: Settings) -> Iterator[Path]:
    if settings.path is not None:
        try:
            yield from chain(settings.path)
        except (RuntimeError, ValueError):  # the chain is too deep, or `~user` names no user
            yield settings.path
    for gold in settings.gold:
        for path in gold.path:
            yield path
            with suppress(OSError):  # it is a file, or is not there
                yield from sorted(path.iterdir())
        yield from (path for path in (gold.frozen, gold.key_file) if path is not None)
    shared = (settings.unconfigured, *settings.pipelines.values())
    yield from sorted({file for pipeline in shared if (file := pipeline.alarms.baseline.file) is not None})
    yield from sorted({file for pipeline in shared if (file := pipeline.capture.hash_key_file) is not None})


class StatusService:
    """Reads the state of the journal writer."""

    def __init__(
        self, writer: JournalWriter, folder: Path, reloading: ConfigReloader, reader: StreamReader | None
    ) -> None:
        self.writer = writer
        self.folder = folder
        self.stopping = False
        self._reloading = reloading
        self._reader = reader
        self._began = writer.clock.now()

    def monitor_snapshot(self) -> MonitorSnapshot:
        """Everything that is exported to Prometheus."""
        writer = self.writer
        with writer.lock:
            snapshot = writer.server_state.monitor_snapshot(writer.clock.now(), writer.open_traces.pending)
            captured = replace(snapshot.captured, judged=self._reloading.probing.judged())
            return replace(snapshot, served=self._served(), captured=captured)

    def moment(self) -> object:
        """A key of all that `monitor_snapshot` depends on: journal rows, window edges, closed minutes, the server."""
        writer, reloading = self.writer, self._reloading
        with writer.lock:
            server_state, labels = writer.server_state, writer.server_state.engine.labels.store
            scoring = (
                server_state,
                server_state.seq,
                server_state.engine.alarms.steps.state.closed,
                writer.open_traces.pending,
            )
            label_counts = (sum(labels.results.values()), labels.pending)
            server = (dict(writer.refused), self.trouble(), writer.resets, writer.clock.jumps, reloading.broken)
            probes = (dict(reloading.probing.counts()), dict(reloading.probing.judged()))
            return int(writer.clock.now()) // BUCKET_SECONDS, scoring, label_counts, server, probes

    def _served(self) -> ServerStats:
        writer, server_state = self.writer, self.writer.server_state
        counts, adder, now = server_state.counts, server_state.adder, writer.clock.now()
        size = 0
        for path in self.folder.glob("journal.db*"):
            with suppress(OSError):  # a file may disappear while it is read
                size += path.stat().st_size
        unknown = {}
        for key, n in counts.unknown.items():
            field, _, reason = key.partition("|")
            unknown[field, reason] = n
        stream = None  # where this server counts itself
        if adder is not None:
            results = dict(adder.state.results)
            stream = StreamStats(adder.watermark(now), adder.behind(now), results, adder.lost, len(adder.configs))
        return ServerStats(
            refused=dict(writer.refused),
            size=size,
            trouble=self.trouble(),
            resets=writer.resets,
            jumps=writer.clock.jumps,
            reloaded=not self._reloading.broken,
            missing=server_state.producers.missing(counts.native),
            lost=dict(server_state.producers.dropped()),
            unknown=unknown,
            probes=self._reloading.probing.counts(),
            bursts=self._reloading.probing.bursts(),
            probed=dict(counts.probed),
            scopes=dict(counts.scopes),
            tools=dict(counts.tools),
            stream=stream,
        )

    def trouble(self) -> str:
        """Why requests cannot be accepted; "" where they can."""
        if self.stopping:
            return "the server is being stopped"
        if not self.writer.alive:
            return "the thread that writes the journal has ended"
        if self.writer.trouble == UNCOUNTED:
            return "an error left rows on disk uncounted; they are being counted again"
        return f"the journal cannot be written ({self.writer.trouble})" if self.writer.trouble else ""

    def quarantine(self) -> str:
        """The number of quarantined requests, in a sentence; "" where there are none."""
        n = self.writer.quarantined
        subject = "1 request is" if n == 1 else f"{n} requests are"
        over = "it" if n == 1 else "each of them"
        return f"{subject} quarantined: the process ended or froze twice over {over}" if n else ""

    def note(self) -> str:
        """What to know besides where requests are accepted; "" where nothing is."""
        n = self.writer.unaccounted
        residual = f"records that the journal does not account for: {n}, see `ragmon verify`" if n else ""
        return "\n".join(filter(None, (self.quarantine(), residual)))

    def failure(self) -> str:
        """Why the server must be restarted; "" where it need not be."""
        return "" if self.writer.alive else self.trouble()

    def status(self, current: MonitorSnapshot) -> dict[str, Any]:
        """The whole status, as plain JSON data."""
        trouble, reloading = self.trouble(), self._reloading
        served = current.served or ServerStats()
        not_writing = (
            [StatusFinding(trouble, self.writer.trouble_since, "requests are refused until it can be written")]
            if trouble
            else []
        )
        idle_probes = [
            StatusFinding(f"probe {name} does not run: {error}", hint=error.hint)
            for name, error in reloading.probing.troubles.items()
        ]
        stale_config = [StatusFinding(reloading.broken, reloading.since, reloading.hint)] if reloading.broken else []
        quarantined, oldest, newest, checkpoint = [], None, None, None
        with suppress(RagmonError), JournalReader(self.folder) as journal:  # `trouble` says why
            oldest, saved, newest = journal.oldest(), journal.last_checkpoint(), journal.last()[1] or None
            checkpoint = None if saved is None else {"row": saved[0], "at": saved[1]}
            fields = ("arrival", "step", "trace_id", "size")
            found = journal.quarantined() if self.writer.quarantined else ()
            quarantined = [{name: getattr(item, name) for name in fields} for item in found]
        since = quarantined[-1]["arrival"] if quarantined else None
        set_aside = [StatusFinding(text, since, "`ragmon doctor` names them")] if (text := self.quarantine()) else []
        away = []
        if self._reader is not None and self._reader.trouble:
            brokers, hint = (
                self.settings().stream.brokers,
                "no alarm is judged until it does, or `[stream] patience` is over",
            )
            away = [StatusFinding(f"{brokers} gives no chunks: {self._reader.trouble}", hint=hint)]
        adder, now = self.writer.server_state.adder, self.writer.clock.now()
        alternating = [
            StatusFinding(f"{part}: several logs take turns as this partition", at, "use one topic for it")
            for part, at in sorted({} if adder is None else adder.state.returned.items())
            if now - at < HOUR
        ]
        findings = ServerFindings(
            problems=(*not_writing, *away, *alternating),
            warnings=(*stale_config, *set_aside, *idle_probes),
            trouble=trouble,
            broken=reloading.broken,
            quarantined=quarantined,
            journal={
                "bytes": served.size,
                "limit": self.writer.journal.limits.size,
                "row": self.writer.server_state.seq,
                "oldest": oldest,
                "newest": newest,
                "checkpoint": checkpoint,
                "resets": served.resets,
            },
        )
        return status(current, self.writer.server_state.engine.settings, self._began, findings)

    def settings(self) -> Settings:
        """The configuration in force."""
        return self.writer.server_state.engine.settings

    def configured(self) -> Sequence[float]:
        """When another configuration came into force, seconds since the epoch."""
        return tuple(self._reloading.times)


class Server:
    """Everything that `ragmon serve` runs.

    Args:
        insecure: Listen on addresses that anyone could write to, and only warn.
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
        self.reader: StreamReader | None = None
        self.labels: LabelProducer | None = None
        if serve.reads_stream:
            self.reader, self.labels = StreamReader(self.writer), LabelProducer(settings.stream)
            self.writer.send_ack = partial(send_ack, settings.stream)
            self.writer.send_labels = self.labels.send
        self.views = StatusService(self.writer, Path(serve.state_dir), self.reloading, self.reader)
        hosts = own_names(serve.hosts)
        views, queries = self.views, QueryService(self.writer, self.views.folder, token)
        view = AdminView(
            views.monitor_snapshot,
            views.moment,
            views.status,
            MonitorHistory(queries.locked),
            views.settings,
            views.failure,
            views.trouble,
            views.note,
            configured=views.configured,
            diagnose=queries.diagnose,
            explain=queries.explain,
            challenge=queries.challenge,
        )
        receiver = ReceiverApp(self.writer, token=token, hosts=hosts)
        connection_shares = shares(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self.otlp = HttpServer(receiver, serve.otlp, tls=tls, name="otlp", connections=connection_shares.write)
        self.grpc = GrpcServer(self.writer, serve.grpc, token=token, tls=tls, connections=connection_shares.write)
        self.admin = HttpServer(
            admin_app(view, hosts, queries.paths()),
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
            for item in journal.attempts.poison():
                # Traces are quarantined when they are restored.
                if (row := row_of(item.key)) is not None:
                    with journal.begin() as batch:
                        moved = batch.quarantine_line(*row, item.line)
                    if moved:
                        message = "a line of row %d is set aside: the process ended twice while it was scored"
                        _log.error(message, row[0])
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
        _log.error("the journal is damaged and was set aside; counts start again from zero: %s", journal.set_aside)
    return JournalWriter(journal, server_state, traces, clock)


def _restored(
    settings: Settings, journal: Journal, clock: Clock, assembly_limits: AssemblyLimits | None
) -> tuple[ServerState, TraceTracker]:
    server_state, traces = recover(settings, journal, journal.attempts), TraceTracker(settings, assembly_limits)
    traces.restore(journal, clock.now(), journal.attempts)
    traces.resume(journal.last()[1], clock.arrival())
    return server_state, traces
