"""`ragmon.install`: one call at start-up connects decorated functions with where their records go."""

from __future__ import annotations

import atexit
from functools import partial
from pathlib import Path

from ragmon.assembly import load_gold, rules
from ragmon.capture import runtime
from ragmon.capture.extract import to_record
from ragmon.capture.sinks import JsonlSink, Sink, Tee
from ragmon.capture.worker import Worker
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.gold import GoldIndex
from ragmon.monitor import Monitor
from ragmon.reading import Books
from ragmon.text import fold

DRAIN = 5.0
"""Seconds the exit of the process waits for records on their way."""


class Installation:
    """What `install` set up, for those who want to look at it or take it down again.

    Attributes:
        settings: The configuration in force.
        worker: The capture thread.
        monitor: The monitor in this process, where there is one.
    """

    def __init__(self, settings: Settings, worker: Worker, monitor: Monitor | None, log: JsonlSink | None) -> None:
        self.settings = settings
        self.worker = worker
        self.monitor = monitor
        self._log = log

    def books(self) -> Books:
        """What capture took in and what became of it."""
        worker = self.worker
        return Books(worker.received, worker.sent, dropped=dict(worker.dropped), pending=worker.pending)

    def shutdown(self, timeout: float = DRAIN) -> bool:
        """Deliver what is on its way and stop capturing; returns whether everything was delivered."""
        global _current  # noqa: PLW0603 - one process has one installation
        if _current is self:
            runtime.use(None)
            _current = None
        done = self.worker.stop(timeout)
        if self._log is not None:
            self._log.close()
            self._log = None
        if self.monitor is not None:
            self.monitor.stop()
        return done


_current: Installation | None = None


def install(config: str | Path | Settings | None = None, *, sink: Sink | None = None) -> Installation:
    """Start capturing decorated calls. A second call changes nothing and returns the first one's installation.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        sink: Where records go; default: a `Monitor` in this process that serves `/metrics`, and the trace log that
            `[export] jsonl` names.

    Raises:
        ConfigError: The configuration is broken.

    Example:
        >>> import ragmon
        >>> installation = ragmon.install(sink=ragmon.testing.Collected())
        >>> installation.shutdown()
        True
    """
    global _current  # noqa: PLW0603
    if _current is not None:
        return _current
    settings = config if isinstance(config, Settings) else load(config)
    monitor: Monitor | None = None
    sinks: list[Sink] = []
    if sink is not None:
        sinks.append(sink)
    elif not settings.disabled:
        monitor = Monitor(settings).start()
        sinks.append(monitor)
    log = _trace_log(settings)
    if log is not None:
        sinks.append(log)
    name, pipeline = settings.pipeline, settings.of(settings.pipeline)
    worker = Worker(partial(to_record, pipeline=name, build=settings.build or None), Tee(*sinks))
    _current = Installation(settings, worker, monitor, log)
    if monitor is not None:
        monitor.captured = _current.books
    if not settings.disabled:
        worker.start()
        runtime.use(
            runtime.Runtime(
                submit=worker.submit,
                pipeline=name,
                rate=pipeline.sampling.rate,
                refusals=frozenset(fold(token) for token in pipeline.refusal.tokens),
                slow_above=pipeline.sampling.slow_above,
            )
        )
        atexit.register(_current.shutdown)
    return _current


def _trace_log(settings: Settings) -> JsonlSink | None:
    """The trace log the configuration names."""
    path = settings.export.jsonl
    if path is None:
        return None
    pipeline = settings.of(settings.pipeline)
    return JsonlSink(
        path,
        content="full" if pipeline.capture.content == "full" else "none",
        probe_content="full" if pipeline.capture.probe_content == "full" else "none",
        gold=GoldIndex(load_gold(settings.gold)),
        facts=rules(pipeline).facts,
    )
