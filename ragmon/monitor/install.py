"""`ragmon.install` connects decorated functions with the exporters of the configuration, once at start-up."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic, time
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from ragmon.capture import call, exporters, trace
from ragmon.capture.call import count_value, outside_calls, reset_after_fork
from ragmon.capture.convert import call_to_record
from ragmon.capture.exporters import BatchExporter, DroppingExporter, Exporter, close
from ragmon.capture.objects import unread
from ragmon.capture.trace import DROPPED, Given
from ragmon.capture.worker import CounterFile, DeadProcess, Timings, Worker, reap
from ragmon.config.load import defaults, load
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.constants import ON, STRICT
from ragmon.core.errors import GoldError, RagmonError, error_location, shorten, warn_once
from ragmon.core.process import default_folder
from ragmon.core.record import MAX_IDS, Label, Totals, parse_label
from ragmon.export.status import SdkStats, StageCounters
from ragmon.ingest.gold import without_broken_gold
from ragmon.monitor.capture_settings import Redactions, capture_settings, file_span_options
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
from ragmon.monitor.sharing import NO_GOLD, SharedMonitor
from ragmon.scoring.ratings import REJECTED

if TYPE_CHECKING:
    from ragmon.capture.span_processor import RagmonSpanProcessor, RequestAssembler

DRAIN: Final = 5.0
"""Seconds that the exit of the process waits for the delivery of queued records."""
EVERY: Final = 10.0
"""Seconds between two reports of all calls."""
_BATCH_SIZE: Final = 1000  # labels
_RETRY_AFTER: Final = 5.0  # seconds, for labels that the sink does not accept


class Installation:
    """Capture in this process: settings of decorated functions, a worker, and the exporters.

    Args:
        sink: The exporter; None: the server the configuration names, else a `Monitor` in this process.
        keep_all: Keep every call, whatever the sampling rates.
        folder: Where counter files are stored so that they outlive the process; None keeps counters in memory.
        spent: Where judges store their quotas; None: in `folder`.
        strict: Raise for a part that cannot be used; otherwise capture goes on without the part, with a warning.
        trouble: Why the settings differ from the configuration as it was written.
    """

    def __init__(
        self,
        settings: Settings,
        sink: Exporter | BatchExporter | None = None,
        *,
        keep_all: bool = False,
        folder: Path | None = None,
        spent: Path | None = None,
        strict: bool = True,
        trouble: RagmonError | None = None,
    ) -> None:
        self.settings = settings
        optional = partial(_optional, strict=strict)
        self.judges = None if settings.disabled else optional(lambda: Panel(settings, folder=spent or folder), None)
        self._given_monitor = sink if isinstance(sink, Monitor) else None
        self._shared = self._trace_log = self._redact = None
        self._owned: list[object] = []
        if not settings.disabled:
            redact = cache(lambda: Redactions(settings))
            server_exporter = server(settings, redact) if sink is None else None
            sink = server_exporter if sink is None else sink
            if sink is None:
                sink = self._shared = SharedMonitor(settings, folder, strict=strict, trouble=trouble)
            self._trace_log = trace_log(settings, redact, strict=strict)
            self._redact = redact() if redact.cache_info().currsize else None
            self._owned = [opened for opened in (server_exporter, self._trace_log) if opened is not None]
        combined = combine(sink, self._trace_log)
        exporter = optional(lambda: with_feedback(settings, combined), combined)
        self._owned += [exporter] if isinstance(exporter, ScoreExporting) else []
        self._sink = exporter if settings.disabled else optional(lambda: with_embeddings(settings, exporter), exporter)
        self._folder = folder
        self._worker = Worker(
            partial(call_to_record, build=settings.build or None),
            self._sink,
            folder=folder,
            every=self._tick,
            processor=self.judges,
        )
        self._capture_settings = capture_settings(settings)
        self._runtime = call.Runtime(
            self._worker.submit,
            awaken=self._start_worker,
            pipeline=settings.pipeline,
            settings=self._capture_settings,
            keep_all=keep_all,
        )
        self._labels = trace.LabelSender(taken=not settings.disabled)
        self._requests: RequestAssembler | None = None
        self._processors: list[tuple[weakref.ref[Any], RagmonSpanProcessor]] = []
        self._process = os.getpid()
        self._has_finalizer = False
        self._begin()

    def _begin(self) -> None:
        self._timings = Timings()
        self._lost_in_dead: dict[str, Counter[str]] = {}
        self._due = self._labels_due = 0.0
        if self._shared is not None:
            self._shared.instance = self._worker.counter_file.instance
            self._shared.own_stats = self.captured

    @property
    def monitor(self) -> Monitor | None:
        """The monitor in this process; None where there is none, or another process of the application has it."""
        return self._given_monitor if self._shared is None else self._shared.monitor

    def start(self, *, alone: bool = False) -> call.Runtime | None:
        """Start capturing, and return the runtime that captured before; it is replaced.

        `alone`: later calls of `install` in this process return this installation and change nothing.
        """
        global _current  # noqa: PLW0603 - one process has one installation
        trace.label_sender = self._labels
        if self.settings.disabled:
            call.expect_none()
            return call.current
        try:
            if self._shared is not None:
                self._shared.start()
        except BaseException:
            self._close()
            raise
        if self._given_monitor is not None:
            self._given_monitor.captured = self.captured
        self._worker.start()
        atexit.register(self.shutdown)
        _running.add(self)
        _current = self if alone else _current
        return call.install_runtime(self._runtime)

    def watch(self, provider: Any) -> None:
        """Capture requests from the spans of a TracerProvider as well; a second call with it changes nothing."""
        if self.settings.disabled or any(ref() is provider for ref, _ in self._processors):
            return
        if not hasattr(provider, "add_span_processor"):
            hint = "make an opentelemetry.sdk.trace.TracerProvider, set it, and give that one"
            raise RagmonError(f"provider takes no span processors: {shorten(provider)}", hint=hint)
        # The SDK is the application's choice.
        from ragmon.capture.span_processor import RagmonSpanProcessor, RequestAssembler  # noqa: PLC0415 - as said

        if self._requests is None:
            settings = self._capture_settings(self.settings.pipeline)
            self._requests = RequestAssembler(self._worker, settings, file_span_options(self.settings))
            self._runtime.claim = self._requests.claim
        processor = RagmonSpanProcessor(requests=self._requests)
        provider.add_span_processor(processor)
        self._processors.append((weakref.ref(provider), processor))

    def counters(self) -> StageCounters:
        """The stage counters of capture, including records lost in dead processes."""
        counts, lost = self._worker.counts(), sum(list(self._lost_in_dead.values()), Counter())
        ignored = Counter() if self._requests is None else Counter(self._requests.ignored)
        return StageCounters(
            counts.received + lost.total() + ignored.total(),
            counts.sent,
            ignored=ignored,
            dropped=Counter(counts.dropped) + lost,
            pending=counts.pending,
        )

    def captured(self) -> SdkStats:
        """The SDK statistics so far."""
        requests = self._requests
        latency: dict[tuple[str, str], Counter[int]] = {}
        for (pipeline, source, _), counts in self._timings.read(self._runtime).items():
            latency.setdefault((pipeline, source), Counter()).update(counts)
        return SdkStats(
            counters=self.counters(),
            calls=self._runtime.totals(),
            latency=latency,
            errors=self._runtime.errors(),
            orphans=outside_calls(),
            unread=dict(unread),
            spans={} if requests is None else dict(requests.gathering.dropped),
            labels=dict(self._labels.dropped),
            withheld=0 if self._redact is None else self._redact.failed,
            judged={} if self.judges is None else self.judges.calls(),
            scopes={} if requests is None else dict(requests.scopes),
            tools={} if requests is None else dict(requests.tools),
        )

    def flush(self, timeout: float = DRAIN) -> bool:
        """Wait until everything captured so far is exported; returns whether it was within `timeout` seconds."""
        return self._worker.flush(timeout)

    def shutdown(self, timeout: float = DRAIN) -> bool:
        """Stop capturing and deliver queued records; returns whether all were within `timeout` seconds."""
        global _current  # noqa: PLW0603 - one process has one installation
        if self._process != os.getpid():  # a child forked without Python's fork hooks has no threads and no server
            return False
        atexit.unregister(self.shutdown)
        _running.discard(self)
        if call.current is self._runtime:
            call.install_runtime(None)
        if trace.label_sender is self._labels:
            trace.label_sender = None
        if _current is self:
            _current = None
        for _, processor in self._processors:
            processor.switch_off()
        if self._requests is not None:
            self._requests.end()
        if self._shared is not None:
            self._shared.expect_end()
        done = self._worker.stop(timeout)
        self._close()
        return done

    def _close(self) -> None:
        if self._worker.is_told:
            self._worker.counter_file.close()
        if self._shared is not None:
            self._shared.close()
        if self.judges is not None:
            self.judges.close()
        for sink in self._owned:
            close(sink)

    def _tick(self, asked: bool) -> None:
        # In the worker's thread: exports labels, and periodically counts of calls and of dead processes; now if asked.
        self._runtime.refresh()
        if self._requests is not None:
            self._requests.sweep(asked)
        if asked or monotonic() >= self._labels_due:
            while self._labels and self._export_label_batch():
                pass
        latency = self._timings.read(self._runtime)
        try:
            if asked or monotonic() >= self._due:
                self._due = monotonic() + EVERY
                counter_file = self._worker.counter_file
                lines = [
                    Totals(
                        ts=time(),
                        instance=counter_file.instance,
                        started=counter_file.started,
                        pipeline=pipeline,
                        source=source,
                        stratum=stratum,
                        calls=calls,
                        kept=count_value(self._runtime.counters[pipeline].kept[source, stratum]),
                        latency_ms=dict(latency.get((pipeline, source, stratum), {})),
                    )
                    for (pipeline, source, stratum), calls in self._runtime.totals().items()
                    if calls
                ]
                exporters.export_totals(self._sink, [*lines, *_losses(counter_file, self._worker.counts().dropped)])
                if self._shared is None or self._shared.monitor is not None:  # it shows the losses of all processes
                    reap(self._folder, self._export_dead_process)
        finally:
            if self._shared is not None:
                self._shared.tick(asked)

    def _export_label_batch(self) -> bool:
        waiting = self._labels.take(_BATCH_SIZE)
        batch = [(given, label) for given in waiting if (label := self._label(given)) is not None]
        try:
            accepted = exporters.label(self._sink, [label for _, label in batch])
        except Exception as error:  # noqa: BLE001 - an exporter may raise anything
            self._labels.dropped[DROPPED] += len(batch)
            warn_once(f"labels could not be passed on and are dropped: {error_location(error)}")
            return True
        if not accepted:
            self._labels_due = monotonic() + _RETRY_AFTER
            self._labels.put_back(given for given, _ in batch)
        return accepted

    def _label(self, given: Given) -> Label | None:
        try:
            ids, comment = given["relevant_ids"], given["comment"]
            if isinstance(ids, str):
                raise TypeError("relevant_ids is a text, not several")  # noqa: TRY301 - one path for all invalid labels
            relevant_ids = None if ids is None else [str(item) for item in islice(ids, MAX_IDS + 1)]
            label = parse_label({**given, "relevant_ids": relevant_ids})
        except (ValueError, TypeError) as error:
            self._labels.dropped[REJECTED] += 1
            warn_once(f"ragmon.label was given what is not a label: {error}")
            return None
        except Exception as error:  # noqa: BLE001 - ids are third-party objects: one bad label must not stop the others
            self._labels.dropped[REJECTED] += 1
            warn_once(f"ragmon.label was given ids that cannot be read: {error_location(error)}")
            return None
        label.comment = comment if self._redact is None else self._redact.comment(comment)
        return label

    def _export_dead_process(self, process: DeadProcess) -> bool:
        # A record that was being exported when the process died may have arrived.
        missing, doubtful = process.missing, process.doubtful
        arrived = exporters.confirms(self._sink, process.doubt) if process.doubt else None
        if arrived is not None:
            missing, doubtful = missing - arrived, doubtful - 1
        uncounted = +Counter({constants.PROCESS_DIED: missing - doubtful, constants.UNCONFIRMED: doubtful})
        dropped = Counter(process.dropped) + uncounted
        accepted = exporters.export_totals(self._sink, _losses(process, dropped))
        if accepted:
            self._lost_in_dead[process.instance] = dropped
            if self._shared is not None:
                self._shared.end_of(process.instance)
        return accepted

    def reset_after_fork(self) -> None:
        """Reset in a forked child before its first call: it must not export what belongs to its parent."""
        self._process = os.getpid()
        self._has_finalizer = False
        if self._given_monitor is not None:  # the parent has it
            self._given_monitor = None
            self._sink = DroppingExporter() if self._trace_log is None else self._trace_log
        if self._shared is not None:
            self._shared.reset_after_fork()
        if self.judges is not None:
            self.judges.reset_after_fork()
        # Dropped records are not judged.
        self._worker.reset_after_fork(self._sink, None if isinstance(self._sink, DroppingExporter) else self.judges)
        was_current = call.current is self._runtime
        self._runtime = self._runtime.reset_after_fork()
        inherited, self._labels = self._labels, trace.LabelSender()
        if trace.label_sender is inherited:
            trace.label_sender = self._labels
        self._begin()
        if self._requests is not None:
            self._requests.reset_after_fork()
        if was_current:
            call.install_runtime(self._runtime)

    def _start_worker(self) -> None:
        self._worker.start()  # a fork copies no thread
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None and not self._has_finalizer:
            self._has_finalizer = True
            # multiprocessing children end with os._exit, which skips atexit but not these finalizers.
            sys.modules["multiprocessing.util"].Finalize(None, self.shutdown, exitpriority=0)


def _losses(producer: CounterFile | DeadProcess, dropped: Mapping[str, int]) -> list[Totals]:
    # A line of their own, of no pipeline: a batch is lost as a whole.
    if not dropped:
        return []
    instance, started = producer.instance, producer.started
    line = Totals(ts=time(), instance=instance, started=started, pipeline=constants.OTHER, source=constants.LIVE)
    line.dropped = dict(dropped)
    return [line]


_current: Installation | None = None
_installing = Lock()
_running: weakref.WeakSet[Installation] = weakref.WeakSet()


def _after_fork() -> None:
    reset_after_fork()
    for installation in list(_running):
        installation.reset_after_fork()


os.register_at_fork(after_in_child=_after_fork)


class _NamedHandler(logging.StreamHandler[TextIO]):
    """Writes warnings to stderr with the library's name, as long as the application has configured no logging."""

    def __init__(self) -> None:
        super().__init__()
        self.setLevel(logging.WARNING)
        self.setFormatter(logging.Formatter("ragmon: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        if not logging.root.handlers:
            self.stream = sys.stderr  # a test, or a process that goes into the background, replaces it
            super().emit(record)


def install(
    config: str | Path | Settings | None = None,
    *,
    provider: Any = None,
    sink: Exporter | BatchExporter | None = None,
    strict: bool | None = None,
) -> Installation:
    """Start capturing decorated calls. A second call changes nothing and returns the first one's installation.

    By default it does not raise: what cannot be used is named in one warning, and capture goes on without it. With a
    broken configuration nothing is captured, and decorated functions run as they are.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the file that `RAGMON_CONFIG` names, else
            `ragmon.toml` in the working directory, else the defaults.
        provider: The application's TracerProvider, to capture its spans as well; it gets one more processor, once.
        sink: Where records go: an object with a method `submit(record)`. Default: the server that `[export] endpoint`
            names, else a `Monitor` that serves `/metrics`, which the processes of an application share. The trace log
            that `[export] jsonl` names is written in any case.
        strict: Raise instead; None: where the environment has `RAGMON_STRICT=1`.

    Returns:
        The installation, whose `flush` and `shutdown` deliver what is queued.

    Raises:
        ConfigError: The configuration is broken, in strict mode.
        GoldError: A gold file is broken, in strict mode.
        RagmonError: The monitor's address is in use, or the trace log cannot be written, in strict mode.

    Examples:
        >>> import ragmon
        >>> installation = ragmon.install(sink=ragmon.testing.Collected())
        >>> installation.shutdown()
        True
    """
    global _current  # noqa: PLW0603 - as above
    strict = os.environ.get(STRICT, "").strip().lower() in ON if strict is None else strict
    log = logging.getLogger("ragmon")
    if not log.handlers:
        log.addHandler(_NamedHandler())
    with _installing:
        if _current is None:
            try:
                # Without a monitor no gate is judged, so the metrics' plugins need not be installed in the application.
                settings = config if isinstance(config, Settings) else load(config, plugins=sink is None)
                try:
                    _current = _started(settings, sink, strict=strict)
                except GoldError as error:
                    if strict:
                        raise
                    _current = _started(without_broken_gold(settings), sink, strict=False, trouble=error)
                    warn_once(f"{NO_GOLD}: {_reason(error)}")
            except Exception as error:
                if strict:
                    raise
                warn_once(f"ragmon is off in this process: {_reason(error)}")
                _current = Installation(replace(defaults(), disabled=True))
                _current.start()
        if provider is not None:
            _optional(partial(_current.watch, provider), None, strict=strict)
        return _current


def _started(
    settings: Settings, sink: Exporter | BatchExporter | None, *, strict: bool, trouble: RagmonError | None = None
) -> Installation:
    folder = None if settings.disabled else default_folder(application_identity(settings))
    installation = Installation(settings, sink, folder=folder, strict=strict, trouble=trouble)
    installation.start()
    return installation


Part = TypeVar("Part")
Otherwise = TypeVar("Otherwise")


def _optional(make: Callable[[], Part], otherwise: Otherwise, *, strict: bool) -> Part | Otherwise:
    # The result is a part that capture can do without; a broken gold file is left to the caller.
    try:
        return make()
    except GoldError:
        raise
    except RagmonError as error:
        if strict:
            raise
        warn_once(f"ragmon continues without what it cannot use: {_reason(error)}")
        return otherwise


def _reason(error: Exception) -> str:
    if isinstance(error, RagmonError):
        return f"{error}; {error.hint}" if error.hint else str(error)
    return f"{error_location(error)}; this is a bug in ragmon: {STRICT}=1 shows where"


def drain() -> None:
    """Deliver queued records, if anything is captured."""
    if _current is not None:
        _current.flush()


def install_signal_handlers() -> None:
    """Deliver queued records when the process gets SIGTERM, then call the previous handler.

    A second signal calls the previous handler at once. Servers that handle SIGTERM and exit normally do not need this:
    ragmon delivers at exit. uvicorn needs it, called in the application's module: it raises the signal again at the
    end, and exit handlers do not run.

    Raises:
        RagmonError: This is not the main thread, the only one where Python allows signal handlers.

    Examples:
        >>> import ragmon, signal
        >>> before = signal.getsignal(signal.SIGTERM)
        >>> ragmon.install_signal_handlers()
        >>> signal.getsignal(signal.SIGTERM) is before
        False
        >>> _ = signal.signal(signal.SIGTERM, before)
    """
    previous = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        signal.signal(number, _default_action if previous in (signal.SIG_DFL, None) else previous)
        try:
            drain()
        finally:
            if callable(previous):
                previous(number, frame)
            elif previous != signal.SIG_IGN:
                _default_action(number, frame)

    try:
        signal.signal(signal.SIGTERM, handle)
    except ValueError:
        hint = "call it in the main thread"
        raise RagmonError("signal handlers cannot be installed in this thread", hint=hint) from None


def _default_action(number: int, _frame: FrameType | None) -> None:
    # The parent sees the signal in the exit status.
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
