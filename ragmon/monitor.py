"""The monitor in one process: records in, gates judged, `/metrics` served."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread
from time import time
from types import TracebackType
from typing import Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server

from ragmon import names
from ragmon.assembly import ScorerPlan, load_gold
from ragmon.capture import runtime
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.contract import Record
from ragmon.errors import RagmonError
from ragmon.export.prometheus import Collector
from ragmon.gates import Outcome
from ragmon.judging import evaluate
from ragmon.reading import Books, Reading
from ragmon.snapshot import ALL
from ragmon.tables import HOUR
from ragmon.windows import State


class Monitor:
    """Capture -> score -> `/metrics`, without a server or a database.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        clock: Seconds since the epoch.

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
        self._clock = clock
        self._policy = self.settings.policy(live=True)
        self._gated = [gate.metric for gate in self._policy.gates]
        retention = max(self._policy.windows.values(), default=HOUR) + HOUR
        state = State(retention=retention, timed_items=True)
        self._scorer = ScorerPlan(self.settings, load_gold(self.settings.gold))(state=state, clock=clock)
        self._lock = Lock()
        self._received = 0
        self._last_scored = 0.0
        self._server: tuple[WSGIServer, Thread] | None = None
        self.captured: Callable[[], Books] | None = None

    def submit(self, record: Record) -> None:
        """Score a record. This is the sink's one method: called off the request path."""
        with self._lock:
            self._received += 1
            try:
                if self._scorer.observe(record):
                    self._last_scored = self._clock()
            except Exception:
                dropped = self._scorer.dropped
                dropped[names.SCORER_ERROR] = dropped.get(names.SCORER_ERROR, 0) + 1
                raise

    def reading(self) -> Reading:
        """This moment: metrics of every window, gates, and the books."""
        with self._lock:
            snapshot = self._scorer.snapshot(
                now=self._clock(), windows={**self._policy.windows, ALL: None}, gated=self._gated
            )
            scorer = self._scorer
            books = {"score": Books(self._received, scorer.scored, dropped=dict(scorer.dropped))}
            last = self._last_scored
        if self.captured is not None:
            books["capture"] = self.captured()
        installed = runtime.installed()
        calls = installed.totals() if installed is not None else {}
        return Reading(
            snapshot=snapshot,
            outcomes=evaluate(snapshot, self._policy),
            books=books,
            calls={(pipeline, names.LIVE, stratum): n for (pipeline, stratum), n in calls.items()},
            orphans=runtime.orphans(),
            last_scored=last,
        )

    def outcomes(self) -> list[Outcome]:
        """The gates at this moment."""
        return list(self.reading().outcomes)

    def digest(self) -> str:
        """The fingerprint of everything counted; a replay of the same records has the same."""
        with self._lock:
            return self._scorer.state.digest()

    def start(self, address: str | None = None) -> Self:
        """Serve `/metrics`.

        Args:
            address: `host:port`, port 0 for any free one; default: `[serve] admin`.

        Raises:
            RagmonError: The address is taken.
        """
        if self._server is None:
            host, _, port = (address or str(self.settings.serve.admin)).rpartition(":")
            registry = CollectorRegistry()
            registry.register(Collector(self.reading))
            try:
                self._server = start_http_server(int(port), host or "127.0.0.1", registry)
            except OSError as error:
                raise RagmonError(
                    f"/metrics cannot be served on {host}:{port} ({error.strerror})",
                    hint="another process has the port: change `[serve] admin`",
                ) from error
        return self

    @property
    def address(self) -> str | None:
        """Where `/metrics` is served, `host:port`; None while it is not."""
        return None if self._server is None else "{}:{}".format(*self._server[0].server_address[:2])

    def stop(self) -> None:
        """Stop serving; what was counted stays readable."""
        if self._server is not None:
            server, thread = self._server
            server.shutdown()
            server.server_close()
            thread.join()
            self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
