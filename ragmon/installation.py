"""`ragmon.install`: one call at start-up connects decorated functions with where their records go."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Final

from ragmon.assembly import load_gold, rules
from ragmon.capture import runtime
from ragmon.capture.convert import to_record
from ragmon.capture.paths import parse
from ragmon.capture.redact import Content, Redaction
from ragmon.capture.sinks import JsonlSink, Sink, Tee
from ragmon.capture.worker import Worker
from ragmon.config.load import load
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.contract import Record
from ragmon.gold import GoldIndex, GoldSet
from ragmon.metrics import Metric
from ragmon.monitor import Monitor
from ragmon.names import DEFAULT_PIPELINE
from ragmon.reading import Books, Captured
from ragmon.text import fold

DRAIN: Final = 5.0
"""Seconds the exit of the process waits for records on their way."""


class Installation:
    """Capture for this process: decorated functions, a worker, and where its records go.

    Args:
        settings: The configuration.
        sink: Where records go; None: a `Monitor` of its own.
        keep_all: Keep every call, whatever rates say.

    Attributes:
        settings: The configuration in force.
        monitor: The monitor in this process, where there is one.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: The trace log cannot be written, or `capture.id_from` is no path.
    """

    def __init__(self, settings: Settings, sink: Sink | None = None, *, keep_all: bool = False) -> None:
        self.settings = settings
        terms = _terms(settings)
        self._own = Monitor(settings) if sink is None and not settings.disabled else None
        target = sink if sink is not None else self._own
        self.monitor = target if isinstance(target, Monitor) else None
        self._log = None if settings.disabled else _trace_log(settings)
        sinks = Tee(*(sink for sink in (target, self._log) if sink is not None))
        self._worker = Worker(partial(to_record, build=settings.build or None), sinks)
        self._runtime = runtime.Runtime(self._worker.submit, pipeline=settings.pipeline, terms=terms, keep_all=keep_all)
        self._process = os.getpid()

    def start(self) -> runtime.Runtime | None:
        """Start capturing, in place of whoever captured before, whose runtime is returned.

        Raises:
            RagmonError: The monitor's address is taken.
        """
        if self.settings.disabled:
            runtime.expect_none()
            return runtime.current
        try:
            if self._own is not None:
                self._own.start()
        except BaseException:
            self._close_log()
            raise
        if self.monitor is not None:
            self.monitor.captured = self.captured
        self._worker.start()
        atexit.register(self.shutdown)
        return runtime.use(self._runtime)

    def captured(self) -> Captured:
        """What capture counted so far."""
        return Captured(self.books(), self._runtime.totals(), self._runtime.errors(), runtime.orphans())

    def books(self) -> Books:
        """What capture took in and what became of it."""
        counts = self._worker.counts()
        return Books(counts.received, counts.sent, dropped=counts.dropped, pending=counts.pending)

    def flush(self, timeout: float = DRAIN) -> bool:
        """Wait until everything captured so far is delivered; returns whether it is."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float = DRAIN) -> bool:
        """Stop capturing and deliver what is on its way; returns whether there was time for all of it."""
        global _current  # noqa: PLW0603 - one process has one installation
        if self._process != os.getpid():  # a forked child has neither the worker's thread nor the server's
            return False
        atexit.unregister(self.shutdown)
        if runtime.current is self._runtime:
            runtime.use(None)
        if _current is self:
            _current = None
        done = self._worker.stop(timeout)
        self._close_log()
        if self._own is not None:
            self._own.stop()
        return done

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()


_current: Installation | None = None
_installing = Lock()


def install(config: str | Path | Settings | None = None, *, sink: Sink | None = None) -> Installation:
    """Start capturing decorated calls. A second call changes nothing and returns the first one's installation.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        sink: Where records go; default: a `Monitor` in this process that serves `/metrics`. The trace log that
            `[export] jsonl` names is written beside either.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is.
        RagmonError: The monitor's address is taken, or the trace log cannot be written.

    Example:
        >>> import ragmon
        >>> installation = ragmon.install(sink=ragmon.testing.Collected())
        >>> installation.shutdown()
        True
    """
    global _current  # noqa: PLW0603 - as above
    with _installing:
        if _current is None:
            # Without a monitor nothing is judged, and the application need not have the metrics' plugins installed.
            settings = config if isinstance(config, Settings) else load(config, plugins=sink is None)
            installation = Installation(settings, sink)
            installation.start()
            _current = installation
        return _current


def _terms(settings: Settings) -> Callable[[str], runtime.Terms]:
    """What capture needs to know of a pipeline, found before the first call needs it."""
    common = _terms_of(settings.common)
    found = {name: _terms_of(pipeline) for name, pipeline in settings.pipelines.items()}
    return lambda pipeline: found.get(pipeline, common)


def _terms_of(pipeline: PipelineSettings) -> runtime.Terms:
    id_from = pipeline.capture.id_from
    return runtime.Terms(
        rate=pipeline.sampling.rate,
        refusals=frozenset(fold(token.strip()) for token in pipeline.refusal.tokens),
        slow_above=pipeline.sampling.slow_above,
        id_from=None if id_from is None else parse(id_from, "capture.id_from"),
    )


def _trace_log(settings: Settings) -> JsonlSink | None:
    """The trace log the configuration names; what of a record is written there is its pipeline's to say."""
    if settings.export.jsonl is None:
        return None
    shared = GoldIndex(load_gold(settings.gold))
    measured = tuple(metric for metric in settings.build_metrics().values() if metric.measured)
    of = cache(lambda pipeline: _redaction(settings.of(pipeline), shared, measured))
    for name in settings.pipelines:
        of(name)  # a broken gold file is found now

    def redact(record: Record) -> Record:
        return of(record.pipeline or DEFAULT_PIPELINE)(record)

    return JsonlSink(settings.export.jsonl, redact)


def _redaction(pipeline: PipelineSettings, shared: GoldIndex, measured: tuple[Metric, ...]) -> Redaction:
    own, known = pipeline.capture.gold, rules(pipeline)
    return Redaction(
        content=_content(pipeline.capture.content),
        probe_content=_content(pipeline.capture.probe_content),
        gold=shared if own is None else GoldIndex(GoldSet.load(own)),
        facts=known.facts,
        grounded_threshold=known.grounded_threshold,
        measured=measured,
    )


def _content(configured: str) -> Content:
    """Text leaves the process only where the whole of it may."""
    return "full" if configured == "full" else "none"
