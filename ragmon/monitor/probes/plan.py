"""What a probing process takes from the configuration: probes, questions, quotas, keys, and the exporter."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from ragmon.capture.exporters import BatchExporter, Exporter, ExporterAdapter, JsonlExporter, close
from ragmon.config.services import ProbeTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.http_client import DailyQuota, shown_url
from ragmon.core.process import default_folder
from ragmon.core.record import Record
from ragmon.ingest.gold import GoldSet
from ragmon.monitor.capture_settings import Redactions, probe_key
from ragmon.monitor.exporting import application_identity, server, trace_log
from ragmon.monitor.probes.question import GoldQuestion
from ragmon.monitor.probes.runner import STDOUT, TraceFile

WAIT: Final = 10.0
"""Seconds a record waits before export to a server: the application's own record of it has more data and should arrive
first.
"""
MOST: Final = 10_000
"""Maximum number of waiting records."""


class ProbeExporter:
    """Exports records after a delay.

    Args:
        sink: The exporter.
        wait: The delay in seconds.

    Attributes:
        lost: Records that could not be exported, by reason.
    """

    def __init__(self, sink: Exporter | BatchExporter, wait: float = 0.0) -> None:
        self.lost: Counter[str] = Counter()
        self._exporter = ExporterAdapter(sink)
        self._wait = wait
        self._queue: deque[tuple[float, Record]] = deque()

    def put(self, record: Record) -> bool:
        """Queue a record, in any thread; returns False if the queue is full."""
        if len(self._queue) >= MOST:
            return False
        self._queue.append((monotonic() + self._wait, record))
        return True

    def deliver(self, *, everything: bool = False) -> None:
        """Export the records whose delay is over, or all of them; call it from one thread only."""
        records: list[Record] = []
        while self._queue and (everything or self._queue[0][0] <= monotonic()):
            records.append(self._queue.popleft()[1])
        for start in range(0, len(records), self._exporter.at_once):
            self.lost.update(self._exporter.give(records[start : start + self._exporter.at_once]))


@contextmanager
def probe_exporter(settings: Settings, redact: Redactions, output: str | None) -> Iterator[ProbeExporter]:
    """The exporter for `output`, or the configured one.

    Args:
        settings: The configuration.
        redact: Removes from records what must not leave the process.
        output: A file, `-` for standard output; None uses the configured exporter.

    Raises:
        RagmonError: None is configured, or it cannot be written.
    """
    if output is not None:
        log = TraceFile(output, redact) if output == STDOUT else JsonlExporter(output, redact)
        yield ProbeExporter(log)
        return
    to_server = server(settings, lambda: redact)
    exporter = to_server or trace_log(settings, lambda: redact)
    if exporter is None:
        hint = "--once, --output FILE, or `[export] endpoint`"
        raise RagmonError("there is nowhere to send what comes back", hint=hint)
    try:
        yield ProbeExporter(exporter, WAIT if to_server is not None else 0.0)
    finally:
        close(exporter)


NAME = "probe"
"""The name of a probe from the command line."""


def questions(gold: GoldSet) -> list[GoldQuestion]:
    """The questions of a gold set, in its order; items without a text are skipped.

    Raises:
        RagmonError: There are none.
    """
    items = [item for item in gold if item.question.strip()]
    if not items:
        raise RagmonError(f"gold set {gold.name} has no question to ask", hint="items with a question: `ragmon gold`")
    return [GoldQuestion(index, item.qid, item.question) for index, item in enumerate(items)]


def chosen_probes(
    settings: Settings, sets: Sequence[GoldSet], *, name: str | None, target: str | None
) -> list[ProbeSpec]:
    """The probes to run.

    Args:
        settings: The configuration.
        sets: The gold sets; if they are not those of the configuration, there must be one only.
        name: The name of one probe; None for all.
        target: Replaces the configured target.

    Raises:
        RagmonError: There is none, or the choice is ambiguous.
    """
    specs = [spec for spec in settings.probes if name in (None, spec.name)]
    if name is not None and not specs:
        raise UnknownNameError("probe", name, [spec.name for spec in settings.probes])
    set_names = {gold.name for gold in sets}
    other_gold = any(spec.gold not in set_names for spec in specs)
    if len(specs) > 1 and (target is not None or other_gold):
        hint = f"--name, one of: {', '.join(spec.name for spec in specs)}"
        raise RagmonError("the configuration has several probes, and --gold or --target is for one of them", hint=hint)
    if not specs:
        specs = [_command_line_probe(settings, sets, target)]
    if other_gold:
        specs = [spec.model_copy(update={"gold": _only_set(sets).name}) for spec in specs]
    if target is None:
        return specs
    return [spec.model_copy(update={"target": _checked_target(target)}) for spec in specs]


def _command_line_probe(settings: Settings, sets: Sequence[GoldSet], target: str | None) -> ProbeSpec:
    """A probe from the command line alone."""
    if target is None:
        raise RagmonError("nothing is to be probed", hint="--gold FILE --target module:function, or [probe.NAME]")
    gold = _only_set(sets)
    return ProbeSpec(
        name=NAME, pipeline=gold.pipeline or settings.pipeline, gold=gold.name, target=_checked_target(target)
    )


def _only_set(sets: Sequence[GoldSet]) -> GoldSet:
    if len(sets) != 1:
        problem = "no gold set" if not sets else f"{len(sets)} gold sets, and no word which one"
        raise RagmonError(f"there is {problem} to ask the questions of", hint="--gold FILE")
    return sets[0]


def _checked_target(target: str) -> str:
    """A target from the command line.

    Raises:
        RagmonError: It is invalid.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - needed only for invalid targets

    try:
        return ProbeTable(target=target).target
    except ValidationError as error:
        hint = "myapp.rag:answer, or https://rag.example/answer"
        raise RagmonError(f"--target is neither a function nor an address: {shown_url(target)}", hint=hint) from error


def quota_in(folder: Path, spec: ProbeSpec) -> DailyQuota:
    """The daily quota of a probe, stored in the server's existing folder."""
    return DailyQuota(spec.max_per_day, path=folder / f"probe-{_digest(spec.name)}", make_folder=False)


def quota_of(settings: Settings, spec: ProbeSpec) -> DailyQuota:
    """The daily quota of a probe on this machine, shared by all processes that run it."""
    folder = default_folder(application_identity(settings))
    name = f"probe-{_digest(str(settings.path), spec.name, spec.target)}"
    return DailyQuota(spec.max_per_day, path=None if folder is None else folder / name)


def _digest(*parts: str) -> str:
    return sha256("|".join(parts).encode()).hexdigest()[:16]


def key_of(settings: Settings, pipeline: str) -> bytes | None:
    """The key that signs probes of a pipeline; None without one.

    Raises:
        RagmonError: The key cannot be read.
    """
    return probe_key(settings.of(pipeline).capture)
