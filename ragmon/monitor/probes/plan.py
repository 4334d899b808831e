"""Where a prober of its own process sends what comes back: the server, or a file of traces.

Which probes there are, and what each asks: from the configuration, or from the command line alone.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Final

from ragmon.capture.exporters import base
from ragmon.capture.exporters.base import BatchExporter, Exporter, ExporterAdapter
from ragmon.capture.exporters.jsonl import JsonlExporter
from ragmon.config.services import ProbeTable
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.private_files import default_folder, make_private
from ragmon.core.quota import DailyQuota
from ragmon.core.record import Record
from ragmon.gold import GoldSet
from ragmon.monitor.build import Redactions, probe_key
from ragmon.monitor.exporting import application_identity, server, trace_log
from ragmon.monitor.probes.prober import QuestionBudget
from ragmon.monitor.probes.question import GoldQuestion
from ragmon.monitor.probes.runner import STDOUT, TraceFile

WAIT: Final = 10.0
"""Seconds an answer is held before it goes to a server: the application's own record of it knows more, and comes first.
"""
MOST: Final = 10_000
"""Records that are held at once."""


class ProbeExporter:
    """Holds records for a while, and hands them on.

    Args:
        sink: Takes them.
        wait: Seconds for which each is held.

    Attributes:
        lost: Records that could not be handed on, by reason.
    """

    def __init__(self, sink: Exporter | BatchExporter, wait: float = 0.0) -> None:
        self.lost: Counter[str] = Counter()
        self._door = ExporterAdapter(sink)
        self._wait = wait
        self._held: deque[tuple[float, Record]] = deque()

    def put(self, record: Record) -> bool:
        """Take a record, in any thread; returns whether there was room."""
        if len(self._held) >= MOST:
            return False
        self._held.append((monotonic() + self._wait, record))
        return True

    def deliver(self, *, everything: bool = False) -> None:
        """Hand on what was held long enough, or everything; in one thread."""
        found: list[Record] = []
        while self._held and (everything or self._held[0][0] <= monotonic()):
            found.append(self._held.popleft()[1])
        for start in range(0, len(found), self._door.at_once):
            self.lost.update(self._door.give(found[start : start + self._door.at_once]))


@contextmanager
def probe_exporter(settings: Settings, redact: Redactions, output: str | None) -> Iterator[ProbeExporter]:
    """The outlet that is asked for, or configured.

    Args:
        settings: The configuration.
        redact: Takes out of records what must not leave.
        output: A file, `-` for standard output; None takes what the configuration names.

    Raises:
        RagmonError: Nothing is, or it cannot be written.
    """
    if output is not None:
        log = TraceFile(output, redact) if output == STDOUT else JsonlExporter(output, redact)
        yield ProbeExporter(log)
        return
    there = server(settings, lambda: redact)
    found = there or trace_log(settings, lambda: redact)
    if found is None:
        hint = "--once, --output FILE, or `[export] endpoint`"
        raise RagmonError("there is nowhere to send what comes back", hint=hint)
    try:
        yield ProbeExporter(found, WAIT if there is not None else 0.0)
    finally:
        base.close(found)


NAME = "probe"
"""The name of a probe that nobody named."""


def questions(gold: GoldSet) -> list[GoldQuestion]:
    """The questions of a gold set, in its order; an item without a text cannot be asked.

    Raises:
        RagmonError: It has none.
    """
    found = [item for item in gold if item.question.strip()]
    if not found:
        raise RagmonError(f"gold set {gold.name} has no question to ask", hint="items with a question: `ragmon gold`")
    return [GoldQuestion(place, item.qid, item.question) for place, item in enumerate(found)]


def chosen_probes(
    settings: Settings, sets: Sequence[GoldSet], *, name: str | None, target: str | None
) -> list[ProbeSpec]:
    """The probes that are meant.

    Args:
        settings: The configuration.
        sets: The gold sets; where they are not those of the configuration, the first one is asked.
        name: The one that is meant; None for all.
        target: Where its questions go in place of where the configuration sends them.

    Raises:
        RagmonError: There is none, or it is not clear which one is meant.
    """
    found = [spec for spec in settings.probes if name in (None, spec.name)]
    if name is not None and not found:
        raise UnknownNameError("probe", name, [spec.name for spec in settings.probes])
    known = {gold.name for gold in sets}
    foreign = any(spec.gold not in known for spec in found)
    if len(found) > 1 and (target is not None or foreign):
        hint = f"--name, one of: {', '.join(spec.name for spec in found)}"
        raise RagmonError("the configuration has several probes, and --gold or --target is for one of them", hint=hint)
    if not found:
        found = [_named_by_nobody(settings, sets, target)]
    if foreign:
        found = [replace(spec, gold=_only(sets).name) for spec in found]
    return found if target is None else [replace(spec, target=_checked(target)) for spec in found]


def _named_by_nobody(settings: Settings, sets: Sequence[GoldSet], target: str | None) -> ProbeSpec:
    """A probe the configuration does not have."""
    if target is None:
        raise RagmonError("nothing is to be probed", hint="--gold FILE --target module:function, or [probe.NAME]")
    gold = _only(sets)
    usual = {key: value for key, value in ProbeTable(target=_checked(target)) if key != "gold"}
    return ProbeSpec(NAME, gold.pipeline or settings.pipeline, gold.name, **usual)


def _only(sets: Sequence[GoldSet]) -> GoldSet:
    if len(sets) != 1:
        told = "no gold set" if not sets else f"{len(sets)} gold sets, and no word which one"
        raise RagmonError(f"there is {told} to ask the questions of", hint="--gold FILE")
    return sets[0]


def _checked(target: str) -> str:
    """A target that was typed.

    Raises:
        RagmonError: It is none.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - for the one who mistypes

    try:
        return ProbeTable(target=target).target
    except ValidationError as error:
        hint = "myapp.rag:answer, or https://rag.example/answer"
        raise RagmonError(f"--target is neither a function nor an address: {target!r}", hint=hint) from error


def budget_in(folder: Path, spec: ProbeSpec) -> QuestionBudget:
    """The day's budget of a probe; what was sent is counted in a server's own folder, which exists."""
    return QuestionBudget(spec.max_per_day, DailyQuota(folder, f"probe-{_mark(spec.name)}"))


def budget_of(settings: Settings, spec: ProbeSpec) -> QuestionBudget:
    """The day's budget of a probe of this machine, whichever process sends it."""
    folder = default_folder(application_identity(settings))
    name = f"probe-{_mark(str(settings.path), spec.name, spec.target)}"
    return QuestionBudget(spec.max_per_day, None if folder is None else DailyQuota(folder, name, make_private))


def _mark(*told: str) -> str:
    return sha256("|".join(told).encode()).hexdigest()[:16]


def key_of(settings: Settings, pipeline: str) -> bytes | None:
    """What proves to an application that a request is a probe; None where nothing does.

    Raises:
        RagmonError: The key cannot be read.
    """
    return probe_key(settings.of(pipeline).capture)
