"""Deliver what is on its way when the process is told to stop.

`ragmon.install`: one call at start-up connects decorated functions with where their records go.

`ragmon.install_signal_handlers`: what is on its way is delivered when the process is asked to end.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import weakref
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from ragmon.capture import api, runtime
from ragmon.capture.call import active, here
from ragmon.capture.convert import to_record
from ragmon.capture.exporters import base
from ragmon.capture.exporters.base import BatchExporter, DroppingExporter, Exporter
from ragmon.capture.trace_buffer import RequestAssembler
from ragmon.capture.worker import Worker
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.private_files import default_folder
from ragmon.export.state import StageCounters
from ragmon.monitor.accounting import SelfMetrics
from ragmon.monitor.build import Redactions, span_settings, terms
from ragmon.monitor.embedded import Monitor
from ragmon.monitor.exporting import (
    ScoreExporting,
    application_identity,
    combine,
    server,
    trace_log,
    with_embeddings,
    with_feedback,
)
from ragmon.monitor.judges import Panel

if TYPE_CHECKING:
    from ragmon.capture.span_processor import RagmonSpanProcessor


def install_signal_handler(signum: int, drain: Callable[[], object]) -> None:
    """Drain on a signal, then do what was done before; a second signal does that at once.

    Args:
        signum: The signal.
        drain: Delivers what waits, within its own time limit.

    Raises:
        RagmonError: This is not the main thread.
    """
    previous = signal.getsignal(signum)

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, _pass_on if previous in (signal.SIG_DFL, None) else previous)
        try:
            drain()
        finally:
            if callable(previous):
                previous(number, frame)
            elif previous != signal.SIG_IGN:
                _pass_on(number, frame)

    try:
        signal.signal(signum, handle)
    except ValueError:
        hint = "call it in the main thread"
        raise RagmonError("signal handlers cannot be installed in this thread", hint=hint) from None


def _pass_on(number: int, _frame: FrameType | None) -> None:
    """End as a process without a handler ends, so that whoever waits for it learns of the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


DRAIN: Final = 5.0
"""Seconds the exit of the process waits for records on their way."""


class Installation:
    """Capture for this process: decorated functions, a worker, and where its records go.

    Args:
        settings: The configuration.
        sink: Where records go; None: the server the configuration names, else a `Monitor` of its own.
        keep_all: Keep every call, whatever rates say.
        folder: Where counters lie so that they outlive the process; None keeps them in memory alone.
        spent: Where judges count what they spent; None: with the counters.

    Attributes:
        settings: The configuration in force.
        monitor: The monitor in this process, where there is one.
        judges: Score answers where their text is.

    Raises:
        GoldError: A gold file is broken.
        RagmonError: The trace log cannot be written, `capture.id_from` is no path, or a judge lacks its key or httpx.
    """

    def __init__(
        self,
        settings: Settings,
        sink: Exporter | BatchExporter | None = None,
        *,
        keep_all: bool = False,
        folder: Path | None = None,
        spent: Path | None = None,
    ) -> None:
        self.settings = settings
        self.judges = None if settings.disabled else Panel(settings, folder=spent or folder)
        self._own = self._log = self._redact = None
        self._mine: list[object] = []
        if not settings.disabled:
            redact = cache(lambda: Redactions(settings))
            there = server(settings, redact) if sink is None else None
            sink = there if sink is None else sink
            self._own = Monitor(settings) if sink is None else None
            self._log = trace_log(settings, redact)
            self._redact = redact() if redact.cache_info().currsize else None
            self._mine = [one for one in (there, self._log) if one is not None]
        target = self._own if sink is None else sink
        self.monitor = target if isinstance(target, Monitor) else None
        told = with_feedback(settings, combine(target, self._log))
        self._mine += [told] if isinstance(told, ScoreExporting) else []
        self._sink = told if settings.disabled else with_embeddings(settings, told)
        self._folder = folder
        self._worker = Worker(
            partial(to_record, build=settings.build or None),
            self._sink,
            folder=folder,
            every=lambda asked: self._self_metrics.tick(asked),  # noqa: PLW0108 - a forked child has others
            detour=self.judges,
        )
        self._runtime = runtime.Runtime(
            self._worker.submit,
            awaken=self._awaken,
            pipeline=settings.pipeline,
            terms=terms(settings),
            keep_all=keep_all,
        )
        self._labels = api.LabelSender(taken=not settings.disabled)
        self._self_metrics = self._open_accounts()
        self._requests: RequestAssembler | None = None
        self._watched: list[tuple[weakref.ref[Any], RagmonSpanProcessor]] = []
        self._process = os.getpid()
        self._ends_with_children = False

    def _open_accounts(self) -> SelfMetrics:
        found = SelfMetrics(self._worker, self._runtime, self._sink, self._folder)
        found.redactions, found.judges, found.labels = self._redact, self.judges, self._labels
        return found

    def start(self, *, alone: bool = False) -> runtime.Runtime | None:
        """Start capturing, in place of whoever captured before, whose runtime is returned.

        Args:
            alone: Whatever calls `install` in this process gets this one, and changes nothing.

        Raises:
            RagmonError: The monitor's address is taken.
        """
        global _current  # noqa: PLW0603 - one process has one installation
        api.current = self._labels
        if self.settings.disabled:
            runtime.expect_none()
            return runtime.current
        try:
            if self._own is not None:
                self._own.start()
        except BaseException:
            self._close()
            raise
        if self.monitor is not None:
            self.monitor.captured = self._self_metrics.captured
        self._worker.start()
        atexit.register(self.shutdown)
        _started.add(self)
        _current = self if alone else _current
        return runtime.install_runtime(self._runtime)

    def watch(self, provider: Any) -> None:
        """Learn from the spans of a TracerProvider; doing so again changes nothing.

        Args:
            provider: The application's; it stays what it is, with one processor more.

        Raises:
            RagmonError: It takes no processors.
        """
        if self.settings.disabled or any(known() is provider for known, _ in self._watched):
            return
        if not hasattr(provider, "add_span_processor"):
            hint = "make an opentelemetry.sdk.trace.TracerProvider, set it, and give that one"
            raise RagmonError(f"provider takes no span processors: {shorten(provider)}", hint=hint)
        from ragmon.capture.span_processor import (  # noqa: PLC0415 - the SDK is the application's choice
            RagmonSpanProcessor,
        )

        if self._requests is None:
            self._requests = self._self_metrics.requests = RequestAssembler(self._worker, span_settings(self.settings))
            self._runtime.claim = self._requests.claim
        processor = RagmonSpanProcessor(requests=self._requests)
        provider.add_span_processor(processor)
        self._watched.append((weakref.ref(provider), processor))

    def books(self) -> StageCounters:
        """What capture took in and what became of it."""
        return self._self_metrics.books()

    def flush(self, timeout: float = DRAIN) -> bool:
        """Wait until everything captured so far is delivered and told; returns whether it is."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float = DRAIN) -> bool:
        """Stop capturing and deliver what is on its way; returns whether there was time for all of it."""
        global _current  # noqa: PLW0603 - one process has one installation
        if self._process != os.getpid():  # a child of a fork that told nobody has neither threads nor a server
            return False
        atexit.unregister(self.shutdown)
        _started.discard(self)
        if runtime.current is self._runtime:
            runtime.install_runtime(None)
        api.detach_labels(self._labels)
        if _current is self:
            _current = None
        for _, processor in self._watched:
            processor.switch_off()
        if self._requests is not None:
            self._requests.end()
        done = self._worker.stop(timeout)
        self._close()
        if self._own is not None:
            self._own.stop()
        return done

    def _close(self) -> None:
        if self._worker.is_told:
            self._worker.page.close()
        if self.judges is not None:
            self.judges.close()
        for sink in self._mine:
            base.close(sink)

    def reset_after_fork(self) -> None:
        """What a forked child must do before its first call: nothing of its parent's is its own to report."""
        self._process = os.getpid()
        self._ends_with_children = False
        if self.monitor is not None:  # whoever reads it reads the parent's
            self._own = self.monitor = None
            self._sink = DroppingExporter() if self._log is None else self._log
        if self.judges is not None:
            self.judges.reset_after_fork()
        # What nobody will see is not judged.
        self._worker.reset_after_fork(self._sink, None if isinstance(self._sink, DroppingExporter) else self.judges)
        was_current = runtime.current is self._runtime
        self._runtime = self._runtime.reset_after_fork()
        self._labels = api.reset_labels_after_fork(self._labels)
        self._self_metrics = self._open_accounts()
        if self._requests is not None:
            self._requests.reset_after_fork()
            self._self_metrics.requests = self._requests
        if was_current:
            runtime.install_runtime(self._runtime)

    def _awaken(self) -> None:
        """Start the thread a fork does not copy, with the first call; and see that the child's end is noticed."""
        self._worker.start()
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None and not self._ends_with_children:
            self._ends_with_children = True
            # Such children leave by os._exit, past atexit, but not past these.
            sys.modules["multiprocessing.util"].Finalize(None, self.shutdown, exitpriority=0)


_started: weakref.WeakSet[Installation] = weakref.WeakSet()


def _after_fork() -> None:
    active.set(None)
    here.lane.busy = False
    for installation in list(_started):
        installation.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)


_current: Installation | None = None
_installing = Lock()


def install(
    config: str | Path | Settings | None = None, *, provider: Any = None, sink: Exporter | BatchExporter | None = None
) -> Installation:
    """Start capturing decorated calls. A second call changes nothing and returns the first one's installation.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        provider: The application's TracerProvider, to learn from its spans as well; it gets one more processor, once.
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
            folder = None if settings.disabled else default_folder(application_identity(settings))
            installation = Installation(settings, sink, folder=folder)
            installation.start()
            _current = installation
        if provider is not None:
            _current.watch(provider)
        return _current


def drain() -> None:
    """Deliver what is on its way, where anything is captured."""
    if _current is not None:
        _current.flush()


def install_signal_handlers() -> None:
    """Deliver what is on its way when the process gets SIGTERM, then do what was done before.

    A second signal passes straight through. Servers that handle SIGTERM and end the process in order need this not:
    ragmon delivers then. uvicorn needs it, called in the application's module: it raises the signal once more at the
    end, and exit handlers do not run.

    Raises:
        RagmonError: This is not the main thread, where alone Python lets handlers be set.
    """
    install_signal_handler(signal.SIGTERM, drain)
