"""The monitor in one process: records in, gates judged, `/metrics` served."""

from __future__ import annotations

import errno
import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock, Thread
from time import time
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from pydantic_core import PydanticCustomError

from ragmon import names
from ragmon.acks import with_acks
from ragmon.alarms import Edge
from ragmon.arming import arm
from ragmon.assembly import ScorerPlan, load_gold
from ragmon.capture.notices import warn_once, whereabouts
from ragmon.config.kinds import Address
from ragmon.config.kinds import address as parse_address
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.contract import Record, Totals
from ragmon.errors import RagmonError, shorten
from ragmon.export.prometheus import Collector
from ragmon.facts import IDS
from ragmon.gates import Outcome, Policy
from ragmon.judging import evaluate
from ragmon.reading import Books, Captured, Reading
from ragmon.snapshot import ALL, Snapshot
from ragmon.tables import HOUR
from ragmon.windows import State

_log = logging.getLogger(names.ALARM_LOG)

EDGES: Final = 1000
"""Beginnings and ends of alarms that are remembered."""
PATIENCE: Final = 10.0
"""Seconds a client may take to send a request."""
BUILDS: Final = 8
"""Builds and indexes of a pipeline that are shown: those seen last."""


class Monitor:
    """Capture -> score -> `/metrics`, without a server or a database.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        clock: Seconds since the epoch.

    Attributes:
        settings: The configuration in force.
        captured: Reads what capture counted, where capture runs in this process and sends its records here.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is.

    Example:
        >>> from ragmon.contract import Answer, Record
        >>> from ragmon.config.load import defaults
        >>> monitor = Monitor(defaults())
        >>> monitor.submit(Record(source="live", answer_json=Answer(claim="not in context", citations=[])))
        >>> monitor.reading().books["score"].scored
        1
    """

    def __init__(self, config: str | Path | Settings | None = None, *, clock: Callable[[], float] = time) -> None:
        self.settings = config if isinstance(config, Settings) else load(config)
        self.captured: Callable[[], Captured] | None = None
        self._clock = clock
        self._windows = {**self.settings.windows, ALL: None}
        self._policies = {name: self.settings.policy(name, live=True) for name in self.settings.pipelines}
        shared = (self.settings.common, *self.settings.pipelines.values())
        self._gated = sorted({gate.metric for one in shared for gate in one.gates})
        retention = max(self.settings.windows.values(), default=HOUR) + HOUR
        state = State(retention=retention, timed_items=True)
        self._scorer = ScorerPlan(self.settings, load_gold(self.settings.gold))(state=state, clock=clock)
        self._alarms = arm(self.settings, self._scorer.table)
        self._scorer.steps = self._alarms.steps
        self._edges: deque[Edge] = deque(maxlen=EDGES)
        self._lock = Lock()
        self._received = 0
        self._last_scored: float | None = None
        self._builds: dict[tuple[str, str, str], None] = {}
        self._server: tuple[WSGIServer, Thread] | None = None

    def submit(self, record: Record) -> None:
        """Score a record. This is the sink's one method: called off the request path; what fails is counted."""
        with self._lock:
            self._received += 1
            try:
                self._advance(self._clock())
                scored = self._scorer.observe(record)
            except Exception as error:  # noqa: BLE001 - a metric is foreign code and may raise anything
                dropped = self._scorer.dropped
                dropped[names.SCORER_ERROR] = dropped.get(names.SCORER_ERROR, 0) + 1
                warn_once(f"a record could not be scored and is dropped: {whereabouts(error)}")
                return
            if scored:
                self._last_scored = self._clock()
                self._see(record)

    def report(self, totals: Sequence[Totals]) -> bool:
        """Take a producer's counts of all its calls: what every stratum weighs. Returns True: they are taken."""
        with self._lock:
            for line in totals:
                self._scorer.state.calls.see(line)
        return True

    def _see(self, record: Record) -> None:
        """Remember the build that answered."""
        if not (record.build or record.index_hash):
            return
        pipeline = record.pipeline or names.DEFAULT_PIPELINE
        key = (pipeline, record.build or "", record.index_hash or "")
        new = key not in self._builds
        self._builds.pop(key, None)
        self._builds[key] = None
        if new and len(mine := [found for found in self._builds if found[0] == pipeline]) > BUILDS:
            del self._builds[mine[0]]

    def reading(self) -> Reading:
        """This moment: metrics of every window, gates, and the books."""
        captured = Captured() if self.captured is None else self.captured()
        with self._lock:
            scorer, now = self._scorer, self._clock()
            self._advance(now)
            snapshot = scorer.snapshot(now=now, windows=self._windows, gated=self._gated)
            books = {"score": Books(self._received, scorer.scored, dropped=dict(scorer.dropped))}
            retrieved = _retrieved(scorer.state)
            builds, last = tuple(self._builds), self._last_scored
            alarms = self._alarms.states()
        if self.captured is not None:
            books["capture"] = captured.books
        return Reading(
            snapshot=snapshot,
            outcomes=self._judge(snapshot),
            books=books,
            captured=captured,
            retrieved=retrieved,
            builds=builds,
            last_scored=last,
            alarms=alarms,
        )

    def _judge(self, snapshot: Snapshot) -> list[Outcome]:
        """The gates of every pipeline that is configured or was seen; one nobody configured has the common gates."""
        seen = sorted({series.pipeline for series in snapshot.series})
        pipelines = dict.fromkeys((*self.settings.pipelines, *seen))
        return [outcome for name in pipelines for outcome in evaluate(snapshot, self._policy(name))]

    def _policy(self, pipeline: str) -> Policy:
        policy = self._policies.get(pipeline)
        if policy is None:
            policy = self._policies[pipeline] = self.settings.policy(pipeline, live=True)
        return policy

    def outcomes(self) -> list[Outcome]:
        """The gates at this moment."""
        return list(self.reading().outcomes)

    def _advance(self, now: float) -> None:
        """Judge the minutes that ended, and say so where somebody should wake up."""
        for edge in self._alarms.advance(now):
            self._edges.append(edge)
            level = logging.WARNING if (edge.severity, edge.state) == (names.PAGE, "firing") else logging.INFO
            _log.log(level, "alarm %s/%s (%s): %s", edge.pipeline, edge.alert, edge.severity, edge.state)

    def edges(self) -> list[Edge]:
        """The alarms that began or ended lately, in the order of time."""
        with self._lock:
            self._advance(self._clock())
            return list(self._edges)

    def acknowledge(self, alert: str, pipeline: str = names.DEFAULT_PIPELINE, reason: str = "") -> bool:
        """Silence an alarm that fires, and arm it again.

        Args:
            alert: Its name, as `ragmon_gate_alarm` shows it.
            pipeline: Whose.
            reason: What somebody found.

        Returns:
            Whether it fired.

        Raises:
            UnknownNameError: There is no such alarm, or the pipeline has had no record.
        """
        with self._lock:
            self._advance(self._clock())
            edges = self._alarms.acknowledge(pipeline, alert)
            self._edges += edges
        _log.info("alarm %s/%s acknowledged: %s", pipeline, alert, reason)
        return bool(edges)

    def digest(self) -> str:
        """The fingerprint of everything counted; a replay of the same records has the same."""
        with self._lock:
            return self._scorer.state.digest()

    def start(self, address: str | None = None) -> Self:
        """Serve `/metrics`; does nothing where it is served already.

        Args:
            address: `host:port`, port 0 for any free one; default: `[serve] admin`.

        Raises:
            RagmonError: It is no address, or nothing can be served there.
        """
        if self._server is None:
            place = self.settings.serve.admin if address is None else _address(address)
            registry = CollectorRegistry()
            registry.register(Collector(self.reading))
            try:
                self._server = start_http_server(place.port, place.host, registry)
                _be_patient(self._server[0])
                self._server[0].set_app(with_acks(make_wsgi_app(registry), self.acknowledge))
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                hint = "another process has the port" if taken else "an address of this machine that you may use"
                raise RagmonError(
                    f"/metrics cannot be served on {place} ({error.strerror or error})",
                    hint=f"{hint}: change `[serve] admin`",
                ) from error
        return self

    @property
    def address(self) -> str | None:
        """Where `/metrics` is served, `host:port`; None while it is not."""
        if self._server is None:
            return None
        host, port = self._server[0].server_address[:2]
        return str(Address(str(host), port))

    def stop(self) -> None:
        """Stop serving; what was counted stays readable."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _be_patient(server: WSGIServer) -> None:
    """Hang up on a client that sends half a request and then nothing."""
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Patient", (handler,), {"timeout": PATIENCE})


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except PydanticCustomError as error:
        hint = (error.context or {}).get("hint", "")
        raise RagmonError(f"/metrics cannot be served on {shorten(text)}", hint=hint) from None


def _retrieved(state: State) -> dict[tuple[str, str], Counter[int]]:
    """How many audit members retrieved how many documents; a matched question is counted as user traffic alone."""
    found: dict[tuple[str, str], Counter[int]] = {}
    for key, series in state.series.items():
        if key.slice or not key.audit or key.source == names.MATCH:
            continue
        counts = found.setdefault((key.pipeline, key.source), Counter())
        for row in state.window(series, None, 0):
            for facts, n in row.cells.items():
                flags, _, length, *_ = facts
                if flags & IDS:
                    counts[length] += n
    return found
