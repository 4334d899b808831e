"""Commands that run until they are stopped: `serve`, `work`, `probe` and `view`."""

from __future__ import annotations

import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Event
from time import monotonic
from typing import Final

import click
from click.core import ParameterSource
from starlette.types import ASGIApp

from ragmon.alarms.plan import rate_text
from ragmon.cli.client import read_back
from ragmon.cli.commands import STDIN
from ragmon.cli.main import fail
from ragmon.cli.options import settings_and_gold, write
from ragmon.cli.score import EXIT, check_gold, policy_of
from ragmon.config.load import load
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core import constants
from ragmon.core.constants import BUCKET_SECONDS
from ragmon.core.errors import InputError, RagmonError, UnavailableError, printable_line
from ragmon.core.http_server import HttpServer
from ragmon.core.network import own_names
from ragmon.core.record import Label, Record, Totals
from ragmon.export.comparison import Canary
from ragmon.export.pages import GENERATOR
from ragmon.export.report_page import comparison_page, stored_page
from ragmon.export.schema import load_report
from ragmon.export.text import render_gates, text
from ragmon.ingest.files import ReadSummary, read_files, unreadable
from ragmon.ingest.gold import GoldSet, load_gold
from ragmon.monitor.admin import admin_app, document_app
from ragmon.monitor.capture_settings import Redactions, file_options, file_span_options
from ragmon.monitor.embedded import Monitor, parse_listen_address
from ragmon.monitor.replay import Run, read_report
from ragmon.scoring.scorer import ScorerFactory
from ragmon.server.probe_client import THROTTLED, ProbeCapture, ProbeClient, ProbeCounts
from ragmon.server.probes import (
    ProbeExporter,
    Prober,
    ProbeWorkers,
    RecordSorter,
    TraceFile,
    chosen_probes,
    key_of,
    probe_exporter,
    questions,
    quota_of,
    run_round,
)
from ragmon.server.queries import JournalView

TEMPORARY: Final = 75
"""The exit code if a restart may help (sysexits.h, EX_TEMPFAIL)."""
GRACE: Final = 1.0
"""Seconds that open requests get at the end."""
CONNECTIONS: Final = 64
HEAD: Final = 1000
"""Characters in which a page says what wrote it."""
LOOK: Final = 2.0
"""Seconds between two checks whether the configuration files changed."""
FILES: Final = 48
"""File descriptors a server needs before a client connects, and a few for the first clients."""
_DELIVERY_INTERVAL: Final = 1.0  # seconds between two deliveries of records
_PROGRESS_INTERVAL: Final = 5.0  # seconds between two progress lines


def probe(
    context: click.Context,
    gold: tuple[str, ...],
    target: str | None,
    config: str | None,
    name: str | None,
    one_round: bool,
    output: str | None,
    judged: bool,
    form: str,
) -> int:
    """Send gold questions through the live pipeline: a function of the application, or an address it answers at."""
    if judged and not one_round:
        raise click.UsageError("--gate judges one round: add --once", context)
    if judged and output == STDIN:
        raise click.UsageError("--output - and --gate both write to stdout: name a file", context)
    if not judged and context.get_parameter_source("form") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--format does nothing without --gate", context)
    settings, gold_sets = settings_and_gold(config, gold)
    specs = chosen_probes(settings, gold_sets, name=name, target=target)
    if judged:
        check_gold(policy_of(settings, None), gold_sets)
    redactions = Redactions(settings)
    with ExitStack() as stack:
        if not one_round:
            exporter = stack.enter_context(probe_exporter(settings, redactions, output))
            return _run_until_signal(settings, gold_sets, specs, exporter)
        trace_file = stack.enter_context(TraceFile(output)) if output or not judged else None
        records: list[Record] = []

        def keep(record: Record) -> None:
            records.append(redactions(record))
            if trace_file is not None:
                trace_file.submit(records[-1])

        with closing(ProbeCapture(settings)) as capture:
            for spec in specs:
                with closing(ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))) as client:
                    _send_once(spec, _gold_of(spec, gold_sets), client, RecordSorter(keep))
    if not judged:
        return 0
    # The gates are judged as `ragmon gate` judges them on the file of the round.
    run = Run(ScorerFactory(settings, gold_sets)())
    run.feed(records)
    report = run.report(policy_of(settings, None, seen=run.pipelines()), questions=False)
    write(text(report) if form == "text" else render_gates(report) if form == "md" else report.json() + "\n", None)
    return EXIT[report.verdict]


def _gold_of(spec: ProbeSpec, gold_sets: Sequence[GoldSet]) -> GoldSet:
    return next(gold for gold in gold_sets if gold.name == spec.gold)


def _send_once(spec: ProbeSpec, gold: GoldSet, client: ProbeClient, ordered: RecordSorter) -> None:
    gold_questions = questions(gold)
    _print_progress(spec, f"{len(gold_questions)} questions of {gold.name} to {spec.asks}")
    counts, last_progress, is_first = ProbeCounts(), monotonic(), True
    for answered in run_round(ProbeWorkers(client, spec.concurrency), gold_questions):
        if is_first and answered.unreachable:
            hint = "is the application running? --target, or [probe.NAME] target, is its address"
            raise RagmonError(f"nothing answers at {spec.asks}: {answered.unreachable}", hint=hint)
        is_first = False
        counts.add(spec.name, answered.result)
        if answered.result != THROTTLED:
            ordered.put(answered.question.index, answered.record)
        if monotonic() >= last_progress + _PROGRESS_INTERVAL:
            last_progress = monotonic()
            _print_progress(spec, f"{ordered.placed} of {len(gold_questions)}")
    ordered.close()
    results = ", ".join(f"{n} {result}" for (_, result), n in sorted(counts.read().items()))
    _print_progress(spec, f"{ordered.placed} of {len(gold_questions)} accounted for: {results}")
    if ordered.placed < len(gold_questions):
        hint = f"{spec.concurrency} calls do not return: find out why, or ask over HTTP, where a request times out"
        raise RagmonError(f"{len(gold_questions) - ordered.placed} questions could not be sent", hint=hint)


def _print_progress(spec: ProbeSpec, text: str) -> None:
    click.echo(printable_line(f"probe {spec.name}: {text}"), err=True)


def _run_until_signal(
    settings: Settings, gold_sets: Sequence[GoldSet], specs: Sequence[ProbeSpec], exporter: ProbeExporter
) -> int:
    signals: SimpleQueue[int] = SimpleQueue()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: signals.put(number))
    counts, probers = ProbeCounts(), list[Prober]()
    with closing(ProbeCapture(settings)) as capture:
        for spec in specs:
            client = ProbeClient.of(spec, capture, key=key_of(settings, spec.pipeline))
            quota = quota_of(settings, spec)
            gold_questions = questions(_gold_of(spec, gold_sets))
            probers.append(Prober(spec, gold_questions, client, exporter.put, counts=counts, quota=quota))
        for prober in probers:
            prober.start()
            _print_progress(prober.spec, f"asks {prober.spec.asks}, a question every {rate_text(prober.interval)} s")
        while True:
            with suppress(Empty):
                signals.get(timeout=_DELIVERY_INTERVAL)
                break
            exporter.deliver()
        for prober in probers:
            prober.stop()
    exporter.deliver(everything=True)
    for (name, result), n in sorted(counts.read().items()):
        click.echo(printable_line(f"probe {name}: {n} {result}"), err=True)
    for reason, n in sorted(exporter.lost.items()):
        click.echo(f"{n} records could not be sent ({reason})", err=True)
    return 0


def view(paths: tuple[str, ...], listen: str, config: str | None) -> int:
    """Open the pages of a monitor on what was recorded: gates, charts, metrics, and where every record went."""
    settings, address = load(config), parse_listen_address(listen)
    names, folder, single = own_names(settings.serve.hosts), Path(paths[0]), len(paths) == 1
    app: ASGIApp | None = None
    stop: Callable[[], object]
    if single and folder.is_dir():
        journal = JournalView(settings, folder)
        app = admin_app(journal.view(), names, journal.queries.paths())
    elif single and (page := report_page_of(paths[0])) is not None:
        app = document_app(page, names)
    if app is None:
        monitor = monitor_of(settings, paths).start(listen)
        stop, listening = monitor.stop, monitor.address
    else:
        server = HttpServer(app, address, tls=None, name="view", connections=CONNECTIONS)
        server.start()
        stop, listening = partial(server.stop, GRACE), str(server.address)
    click.echo(f"http://{listening}/")
    try:
        Event().wait()
    except KeyboardInterrupt:
        stop()
    return 0


def report_page_of(path: str) -> str | None:
    """The page of a report or of a comparison in JSON or HTML; None for another file, such as traces."""
    if not path.endswith((".json", ".html", ".htm")):
        return None
    if not path.endswith(".json"):
        try:
            page = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"the page cannot be read ({reason})", path=path, hint="check name and rights") from error
        if f'<meta name="generator" content="{GENERATOR}' not in page[:HEAD]:
            hint = "`ragmon replay --format html` and `ragmon compare --format html` write pages"
            raise InputError("this is not a page of ragmon", path=path, hint=hint)
        return page
    data = read_report(path, "the report")
    if data is None:
        return None
    if "candidate" not in data:
        return stored_page(load_report(data, path))
    try:
        return comparison_page(read_back(data, Canary, "comparison of releases"))
    except RagmonError as error:
        raise InputError(str(error), path=path, hint="`ragmon compare --format json` writes one") from error


def monitor_of(settings: Settings, paths: Sequence[str]) -> Monitor:
    """A monitor that has scored trace files in the order of their times; its clock stands still after the newest.

    Entries without a time are as new as the newest.
    """
    intake = ReadSummary()
    options, spans = file_options(settings), file_span_options(settings)
    entries = list(read_files(paths, intake, options=options, span_options=spans))
    if not any(isinstance(entry, Record) for entry in entries):
        raise unreadable(paths, intake, options)
    newest = max((entry.ts for entry in entries if entry.ts is not None), default=time.time())
    timed = sorted(((newest if entry.ts is None else entry.ts, entry) for entry in entries), key=itemgetter(0))
    moment = [timed[0][0]]
    monitor = Monitor(settings, clock=lambda: moment[0])
    for ts, entry in timed:
        moment[0] = ts
        if isinstance(entry, Totals):
            monitor.report([entry])
        elif isinstance(entry, Label):
            monitor.label([entry])
        else:
            entry.source = entry.source or constants.LIVE  # gates look at live traffic
            monitor.submit(entry)
    moment[0] += BUCKET_SECONDS
    monitor.of_files = True
    return monitor


def work(config: str | None) -> int:
    """Count the partitions that the consumer group gives this process, and write chunks of counts."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    stopping = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    settings = load(config)
    try:
        from ragmon.stream.worker import StreamWorker, worker_app  # noqa: PLC0415 - no other command needs it

        worker = StreamWorker(settings, load_gold(settings.gold))
        server = HttpServer(worker_app(worker, settings.serve.hosts), settings.serve.admin, tls=None, name="admin")
        server.start()
        try:
            click.echo(f"admin: {server.address}", err=True)
            click.echo("ready", err=True)
            worker.run(stopping)
        finally:
            server.stop(0.0)
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)
    click.echo("stopping: the next owner continues from the last chunk", err=True)
    return 0


def serve(config: str | None, insecure: bool) -> int:
    """Take OTLP from any number of producers, journal and score it, and show what came of it."""
    from ragmon.server.process import limit_arenas  # noqa: PLC0415 - as below

    limit_arenas()  # before there are threads, each with its own malloc arena
    try:
        _raise_file_limit()
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)
    from ragmon.server.process import Watchdog  # noqa: PLC0415 - as above
    from ragmon.server.server import Server  # noqa: PLC0415 - protobuf, grpc and uvicorn take longer than any command

    handler = logging.StreamHandler()
    handler.setFormatter(_OneLineFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    signals: SimpleQueue[int] = SimpleQueue()
    watchdog = Watchdog(TEMPORARY)

    # Install signal handlers; after a signal to stop, the watchdog enforces a deadline, also during start-up.
    def on_signal(number: int, _: object) -> None:
        signals.put(number)
        if number != signal.SIGHUP:
            watchdog.hurry()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    settings = load(config)
    try:
        with watchdog:
            server = Server(settings, insecure=insecure, on_attempts=watchdog.watch)
            for warning in server.warnings:
                click.echo(f"warning: {warning}", err=True)
            with server:
                for name, address in server.addresses().items():
                    click.echo(f"{name}: {address}", err=True)
                click.echo("ready", err=True)
                while (received := _next_signal(signals)) not in (signal.SIGTERM, signal.SIGINT):
                    if received == signal.SIGHUP:
                        server.reloading.reload()
                    else:
                        server.reloading.poll()
                click.echo("stopping: writing what was accepted to disk", err=True)
            return 0
    except UnavailableError as error:
        fail(str(error), error.hint, TEMPORARY)


class _OneLineFormatter(logging.Formatter):
    """A log formatter that keeps each message on one line, whatever it quotes; only a traceback adds lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is Python's
        record.message = printable_line(record.message)
        return super().formatMessage(record)


def _raise_file_limit() -> None:
    # Idle connections must not block other clients. With fewer files than a server needs to start, later failures would
    # name other causes.
    _, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    descriptors: list[int] = []
    try:
        while len(descriptors) < FILES:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        message = f"only {len(descriptors)} files can be opened, {FILES} are needed ({error.strerror})"
        hint = "raise `ulimit -n`, or LimitNOFILE= in the unit; if the whole machine is short of files, try later"
        raise UnavailableError(message, hint=hint) from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _next_signal(signals: SimpleQueue[int]) -> int | None:
    # All pending signals are taken at once: any number of SIGHUPs count as one, and a signal to stop comes first.
    try:
        pending = [signals.get(timeout=LOOK)]
    except Empty:
        return None
    while not signals.empty():
        pending.append(signals.get())
    return max(pending, key=(signal.SIGHUP, signal.SIGINT, signal.SIGTERM).index)
