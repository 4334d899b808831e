"""The embedded monitor, and the election of the process of an application that runs it.

The monitor scores records in one process, judges gates, and serves the admin port of a server, without what needs a
journal. The port also takes `POST /v1/ack`, the only request that changes anything, from this machine alone.

The elected process holds the lock on a file, in which its address and token stand. The kernel releases the lock however
the process ends. This user alone may read the file's folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from time import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from pydantic_core import PydanticCustomError

from ragmon.alarms.pipelines import AlarmTransition
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.units import address as parse_address
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.errors import RagmonError, UnavailableError, UnknownIncidentError, shorten
from ragmon.core.network import Address, own_names
from ragmon.core.policy import Outcome
from ragmon.core.process import is_private, make_private
from ragmon.core.record import Ack, Label, Record, Totals
from ragmon.export.status import MonitorSnapshot, SdkStats, ServerFindings, StageCounters, StatusFinding, status
from ragmon.monitor.engine import Engine, MonitorHistory

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from starlette.types import ASGIApp

    from ragmon.core.http_server import HttpServer

SUFFIX: Final = ".leader"
_ATTEMPTS: Final = 20  # to lock the file while other processes remove it or its folder
_MAX_SIZE: Final = 4096  # bytes of the file that are read
_KILLED_AFTER: Final = 60.0  # seconds; an unlocked file that is older belongs to a killed leader
GRACE: Final = 1.0  # seconds that requests in flight get to finish when the monitor stops serving
_INCIDENT: Final = re.compile(r".*-[0-9]{8}T[0-9]{4}(-[0-9]+)?", re.DOTALL)
ANSWERS: Final = 10_000
"""Answers that are kept, without their texts, until a label comes: an embedded monitor has no journal."""


class LeaderAddress(msgspec.Struct, frozen=True):
    """Where the leader is reached: the id of its leadership, its address, the token that its followers send."""

    leader: str
    url: str
    token: str


class Election:
    """One process's part in the election among the processes that share a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def acquire(self) -> bool:
        """Try to become the leader; return whether this process leads.

        Raises:
            OSError: The folder cannot be written, or another user may write to it.
        """
        for _ in range(_ATTEMPTS if self._file is None else 0):
            try:
                self._file = self._lock()
            except BlockingIOError:
                return False
            except FileNotFoundError:  # another process took the empty folder away
                continue
            if self._file is not None:
                break
        return self._file is not None

    def _lock(self) -> int | None:
        # Lock the file; None if its last leader has removed it meanwhile.
        make_private(self._path.parent)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink:
                os.ftruncate(file, 0)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)
        return None

    def publish(self, address: LeaderAddress) -> None:
        """Write the address of this process, which is the leader."""
        if self._file is not None:
            data = msgspec.json.encode(address)
            os.pwrite(self._file, data, 0)
            os.ftruncate(self._file, len(data))

    def leader(self) -> LeaderAddress | None:
        """The address of the leader; None while it is unknown."""
        try:
            if not is_private(self._path.parent):
                return None
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_SIZE), type=LeaderAddress)
        except (OSError, msgspec.MsgspecError):  # there is no leader, or it is about to write
            return None

    def release(self) -> None:
        """Give the leadership up."""
        if self._file is not None:
            with suppress(OSError):  # the folder may hold other files, or have become read-only
                self._path.unlink(missing_ok=True)
                self._path.parent.rmdir()
                self._path.parent.parent.rmdir()
            os.close(self._file)
            self._file = None

    def leave_to_parent(self) -> None:
        """Close the file that a forked child inherited; its parent stays the leader."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def sweep(folder: Path) -> None:
    """Remove the files of leaders that were killed."""
    for path in folder.glob(f"*{SUFFIX}"):
        with suppress(OSError):  # its leader lives
            if time() - path.stat().st_mtime < _KILLED_AFTER:
                continue
            file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(file)


def split(name: str, usual: str = constants.DEFAULT_PIPELINE) -> tuple[str, str]:
    """The alarm and the pipeline of `[PIPELINE/]ALARM`.

    >>> split("support/precision"), split("precision")
    (('precision', 'support'), ('precision', 'default'))
    """
    pipeline, slash, alert = name.rpartition("/")
    if not alert or (slash and not pipeline):
        raise RagmonError(f"{name!r} names no alarm", hint="[PIPELINE/]ALARM, as `ragmon_gate_alarm` shows them")
    return alert, pipeline or usual


def check_incident(pipeline: str, alert: str, incidents: Mapping[str, float | None]) -> None:
    """Refuse an incident that is over, and a name that an incident alone has where none has it.

    Args:
        pipeline: The pipeline that was asked for, as `split` gives it.
        alert: The alarm or the incident, as `split` gives it.
        incidents: When each incident ended; None for one that lasts.
    """
    whole = f"{pipeline}/{alert}"  # a pipeline, and so its incident, may have a slash in its name
    name = whole if whole in incidents else alert
    if (ended := incidents.get(name)) is not None:
        raise UnknownIncidentError(name, incidents, f"{datetime.fromtimestamp(ended, UTC):%Y-%m-%d %H:%M} UTC")
    if name not in incidents and _INCIDENT.fullmatch(name):
        raise UnknownIncidentError(name, incidents)


class Monitor:
    """A monitor inside of this process: it scores records, judges gates and can serve `/metrics`; nothing is stored.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        clock: Seconds since the epoch.
        registry: A registry of prometheus_client that has the series of `/metrics` as well; None where `start` alone
            serves them.

    Attributes:
        settings: The configuration in force.
        captured: Reads the SDK statistics, where capture runs in this process and sends its records here.
        beside: Puts another application beside that of the admin port; None leaves it alone.
        trouble: Why the configuration is not in force as it was written; None where it is.
        of_files: Whether it shows files, and counts nothing more.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is broken.

    Examples:
        >>> from ragmon.core.record import Answer, Record
        >>> from ragmon.config.load import defaults
        >>> monitor = Monitor(defaults())
        >>> monitor.submit(Record(source="live", answer_json=Answer(claim="not in context", citations=[])))
        >>> monitor.snapshot().stages["score"].scored
        1
    """

    def __init__(
        self,
        config: str | Path | Settings | None = None,
        *,
        clock: Callable[[], float] = time,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.settings = config if isinstance(config, Settings) else load(config)
        self.captured: Callable[[], SdkStats] | None = None
        self.beside: Callable[[ASGIApp], ASGIApp] | None = None
        self.trouble: RagmonError | None = None
        self.of_files = False
        self._clock = clock
        self._engine = Engine(self.settings, answers=ANSWERS, logs_capture=True)
        self._lock = Lock()
        self._received = self._changes = 0
        self._began = clock()
        self._server: HttpServer | None = None
        if registry is not None:
            from ragmon.export.prometheus import Collector  # noqa: PLC0415 - loads prometheus_client

            registry.register(Collector(self.snapshot, self._cache_key))

    def submit(self, record: Record) -> None:
        """Score a record. The method that exporters have: a worker calls it, off the request path.

        Args:
            record: One request.
        """
        with self._lock:
            self._received += 1
            self._engine.observe(record, self._clock())

    def report(self, totals: Sequence[Totals]) -> bool:
        """Count a producer's totals of all its calls, by which sampled records are weighted.

        Args:
            totals: The totals of one or several producers.

        Returns:
            True: they are accepted.
        """
        with self._lock:
            self._changes += 1
            for line in totals:
                self._engine.report(line, self._clock())
        return True

    def label(self, labels: Sequence[Label]) -> bool:
        """Join labels with the answers they are about; what became of each is counted in `ragmon_labels_total`.

        Args:
            labels: What people said of answers.

        Returns:
            True: they are accepted.
        """
        with self._lock:
            self._changes += 1
            for line in labels:
                self._engine.apply(line, self._clock())
        return True

    def snapshot(self) -> MonitorSnapshot:
        """The current state: metrics of every window, gates, alarms and stage counters."""
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            engine, now = self._engine, self._clock()
            engine.advance(now)
            stages = {"score": StageCounters(self._received, engine.scorer.scored, dropped=dict(engine.scorer.dropped))}
            if self.captured is not None:
                stages["capture"] = captured.counters
            current = engine.monitor_snapshot(now, stages, engine.within(captured))
            return replace(current, reloaded=self.trouble is None)

    def _cache_key(self) -> object:
        # It changes whenever the result of `snapshot` may change.
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            self._engine.advance(self._clock())
            closed = self._engine.alarms.steps.state.closed
            return self._changes, self._received, int(self._clock()) // BUCKET_SECONDS, closed, captured

    @contextmanager  # nothing is counted meanwhile
    def _locked(self) -> Iterator[tuple[Engine, float]]:
        with self._lock:
            yield self._engine, self._clock()

    def outcomes(self) -> list[Outcome]:
        """The current gate outcomes."""
        return list(self.snapshot().outcomes)

    def transitions(self) -> list[AlarmTransition]:
        """The latest alarm transitions, in the order of time."""
        with self._lock:
            self._engine.advance(self._clock())
            return list(self._engine.transitions)

    def acknowledge(
        self, alert: str, pipeline: str = constants.DEFAULT_PIPELINE, reason: str = "", by: str = ""
    ) -> bool:
        """Silence an alarm that fires, and restart its detector.

        Args:
            alert: The alarm's name, as `ragmon_gate_alarm` shows it.
            pipeline: The alarm's pipeline.
            reason: Why; it is logged, and shown on the page.
            by: Who acknowledges it; as the reason.

        Returns:
            Whether it fired.

        Raises:
            UnknownNameError: There is no such alarm, or the pipeline has had no record.
        """
        with self._lock:
            self._changes += 1
            now = self._clock()
            self._engine.advance(now)
            check_incident(pipeline, alert, {each.name: each.ended for each in self._engine.incidents.incidents})
            return self._engine.acknowledge(Ack(pipeline=pipeline, alert=alert, reason=reason, by=by), now)

    def digest(self) -> str:
        """The fingerprint of everything counted; a replay of the same records has the same."""
        with self._lock:
            return self._engine.scorer.state.digest()

    def start(self, address: str | None = None) -> Self:
        """Serve the admin port: a status page, `/metrics`, `/healthz` and more; does nothing if it is served already.

        Args:
            address: `host:port`, port 0 for any free one; default: `[serve] admin`.

        Raises:
            RagmonError: The address is invalid, or cannot be bound.
        """
        if self._server is None:
            listen_address = self.settings.serve.admin if address is None else parse_listen_address(address)
            # These load starlette and uvicorn, which only an application that serves its monitor needs.
            from ragmon.core.http_server import HttpServer, shares  # noqa: PLC0415 - as above
            from ragmon.export.pages import GateFindings  # noqa: PLC0415 - as above
            from ragmon.monitor.admin import AdminView, admin_app  # noqa: PLC0415 - as above

            def current_status(current: MonitorSnapshot) -> Mapping[str, Any]:
                findings, trouble = ServerFindings(of_files=self.of_files), self.trouble
                if trouble is not None:
                    problem = StatusFinding(str(trouble), hint=trouble.hint)
                    findings = ServerFindings(problems=[problem], broken=str(trouble))
                return status(current, self.settings, self._began, findings)

            def explained(pipeline: str, name: str, at: float | None = None) -> GateFindings:
                try:
                    with self._locked() as (engine, now):
                        return GateFindings(engine.gates.explain(now if at is None else at, pipeline, name)[1])
                except RagmonError as error:
                    return GateFindings(note=f"{error}. {error.hint}.")

            view = AdminView(
                self.snapshot,
                self._cache_key,
                current_status,
                MonitorHistory(self._locked),
                lambda: self.settings,
                diagnose=lambda pipeline, gate, broken: explained(pipeline, gate) if broken else GateFindings(),
                explain=lambda pipeline, alarm, at, _: explained(pipeline, alarm, at),
            )
            app = admin_app(view, own_names(self.settings.serve.hosts), acknowledge=self.acknowledge)
            app = app if self.beside is None else self.beside(app)
            connections = shares(resource.getrlimit(resource.RLIMIT_NOFILE)[0]).admin
            server = HttpServer(app, listen_address, tls=None, name="admin", connections=connections)
            try:
                server.start()
            except UnavailableError as error:
                reason = getattr(error.__cause__, "strerror", None) or error
                message = f"/metrics cannot be served on {listen_address} ({reason})"
                raise RagmonError(message, hint=error.hint) from error
            self._server = server
        return self

    @property
    def address(self) -> str | None:
        """The `host:port` where the monitor is served; None while it is not."""
        return None if self._server is None else str(self._server.address)

    def stop(self) -> None:
        """Stop serving; the counts stay readable."""
        if self._server is not None:
            server, self._server = self._server, None
            server.stop(GRACE)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def parse_listen_address(text: str) -> Address:
    """The address to listen on, `host:port`."""
    try:
        return parse_address(text)
    except PydanticCustomError as error:
        hint = (error.context or {}).get("hint", "")
        raise RagmonError(f"/metrics cannot be served on {shorten(text)}", hint=hint) from None
