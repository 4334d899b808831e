"""`ragmon init`: write ragmon.toml from what is seen of the answers, in trace files or by a running monitor.

What is seen are the gates and the capture reports that `replay` and the pages show. A remedy that is a whole setting is
written, and the files are scored again with it: it makes visible what was not assessable before.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from textwrap import wrap
from typing import Any, Final

import click

from ragmon.cli.client import STATUS, get_json, read_back
from ragmon.cli.commands import STDIN
from ragmon.cli.options import write
from ragmon.config.load import load, scope_of, toml_text
from ragmon.config.problems import KeyPath, dotted
from ragmon.config.settings import Settings
from ragmon.config.units import is_name
from ragmon.core.errors import RagmonError, printable, printable_line
from ragmon.export.schema import GateSummary, SeriesSummary
from ragmon.export.text import bounds_text, percent, shares, value, why
from ragmon.gates.coverage import CITATIONS, FIELDS, GOLD, GOLD_IDS, HALF, CaptureReport
from ragmon.ingest.files import unreadable
from ragmon.ingest.gold import gold_of
from ragmon.ingest.tables import TableOptions
from ragmon.metrics.facts import CitationCounts
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.replay import run_files
from ragmon.scoring.buckets import State
from ragmon.scoring.scorer import ScorerFactory

PASSES: Final = 4
"""How often files are read at most: a setting makes visible what a further one mends."""
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_SETTING: Final = re.compile(rf"`\[((?:{_STRING}|[^`\]\"])+)\] ((?:ids|id_from|tokens) = (?:{_STRING}|[^`\"])+)`")
_WIDTH: Final = 116
_NAMED: Final = 3  # refusals that are shown


@dataclass
class _Seen:
    """What is known of the answers; of a monitor neither state nor series."""

    captured: list[CaptureReport]
    gates: list[GateSummary]
    series: list[SeriesSummary] = field(default_factory=list)
    state: State = field(default_factory=State)


@dataclass
class _Entry:
    """A key: its value, None where it is only spoken of; what was seen; whether a person has to switch it on."""

    entry: Any
    comments: list[str]
    is_off: bool = False


@dataclass
class _File:
    """A configuration as it grows. The key "" stands for its table."""

    head: str
    entries: dict[KeyPath, _Entry] = field(default_factory=dict)

    def add(self, path: KeyPath, entry: Any, comment: str = "", *, is_off: bool = False) -> None:
        """Add a key; a list is added to the entries that the key has, any other value stays as it is."""
        known = self.entries.setdefault(path, _Entry(entry, [], is_off))
        known.is_off &= is_off
        if isinstance(known.entry, list):
            known.entry = list(dict.fromkeys([*known.entry, *entry]))
        if comment and comment not in known.comments:
            known.comments.append(comment)

    def __str__(self) -> str:
        tables: dict[KeyPath, list[tuple[str, _Entry]]] = {}
        for path, entry in self.entries.items():
            tables.setdefault(path[:-1], []).append((str(path[-1]), entry))
        parts = [self.head]
        for table, rows in tables.items():
            is_off = all(entry.is_off or entry.entry is None for _, entry in rows)
            lines = [f"{'# ' * is_off}[{dotted(table)}]"]
            for key, entry in rows:
                for comment in entry.comments:
                    whole = printable_line(comment).replace(" %", "\0%")  # a number and its sign stay together
                    wrapped = wrap(whole, _WIDTH, initial_indent="# ", subsequent_indent="#   ")
                    lines += [line.replace("\0", " ") for line in wrapped]
                if entry.entry is not None:
                    lines.append(f"{'# ' * entry.is_off}{key} = {toml_text(entry.entry)}")
            parts.append("\n".join(lines))
        return "\n\n".join(parts) + "\n"


def init(
    context: click.Context,
    traces: tuple[str, ...],
    gold: tuple[str, ...],
    url: str | None,
    output: str,
    force: bool,
    tables: TableOptions,
) -> None:
    """Write a configuration from TRACES, or from what a monitor has seen."""
    if bool(traces) == (url is not None):
        raise click.UsageError("TRACES are read, or a monitor is asked with --url: give one of them", context)
    if STDIN in traces:
        raise RagmonError("traces are read more than once, and standard input can be read once: '-'", hint="a file")
    if output != STDIN and os.path.lexists(output) and not force:
        raise RagmonError(f"{output} exists", hint="--force overwrites it, --output FILE writes another one")
    folder = Path() if output == STDIN else Path(output).parent
    sources = printable_line(" ".join(traces) if url is None else f"--url {url}")
    file = _File(f"# Written by `ragmon init {sources}`: each comment says what was seen there.")
    for each in gold_of(load(os.devnull, environ={}), gold, tables) if gold else ():
        paths = [name if Path(name).is_absolute() else os.path.relpath(name, folder) for name in gold]
        file.add(("gold", each.name, "path"), paths[0] if len(paths) == 1 else paths, f"{len(each):,} items")
    for _ in range(1 if url is not None else PASSES):
        before = str(file)
        seen = _of_monitor(url) if url is not None else _of_files(traces, gold, tables, before, folder)
        reports = [report for report in seen.captured if is_name(report.pipeline)]
        several = len({report.pipeline for report in seen.captured}) > 1
        for report in reports:
            _add_settings(file, report, seen.state, scope_of(report.pipeline) if several else ())
        if str(file) == before:
            break
    for report in reports:
        _add_notes(file, report, seen, scope_of(report.pipeline) if several else ())
    for gate in seen.gates:
        _add_gate(file, gate, f"{gate.pipeline}: " if several else "")
    with _loaded(str(file), folder):  # an error here is a bug, and nothing is written
        write(str(file), output)
    judged = sum(gate.value is not None for gate in seen.gates)
    click.echo(f"{printable_line(output)}: {judged} of {len(seen.gates)} gates can be judged", err=True)


@contextmanager
def _loaded(text: str, folder: Path) -> Iterator[Settings]:
    # The paths of gold are relative to the folder. With content, answers may be quoted.
    with NamedTemporaryFile("w", prefix=".ragmon-", suffix=".toml", dir=folder, encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield load(file.name, environ={"RAGMON_CONTENT": "full"})


def _of_files(traces: Sequence[str], gold: Sequence[str], tables: TableOptions, text: str, folder: Path) -> _Seen:
    with _loaded(text, folder) as settings:
        plan = ScorerFactory(settings, gold_of(settings, gold, tables))
    options = file_options(settings, tables)
    run = run_files(traces, plan, options=options, span_options=file_span_options(settings))
    if not run.intake.readable:
        raise unreadable(traces, run.intake, options)
    report = run.report(settings.policy(seen=run.pipelines()), questions=False).document
    return _Seen(report.captured, report.gates, report.series, run.scorer.state)


def _of_monitor(url: str) -> _Seen:
    status = get_json(url, STATUS, {})
    gates = [{"n_eff": None, "needed": None, **gate} for gate in status.get("gates", ())]
    return read_back({"captured": status.get("captured", ()), "gates": gates}, _Seen, "status of a monitor")


def _add_settings(file: _File, report: CaptureReport, state: State, scope: KeyPath) -> None:
    if not scope:
        file.add(("pipeline", "name"), report.pipeline)
    counts, base = CitationCounts(*state.citations.get(report.pipeline, ())), (*scope, "citations", "base")
    if counts.citing and base not in file.entries:
        form, by_number = counts.form, counts.by_rank > HALF * counts.citing
        ways = {"by number, such as [1]": counts.by_rank, "by names that are not retrieved ids": counts.unlike}
        parts = [f"{percent(n / counts.citing)} {way}" for way, n in ways.items() if n]
        told = f"{counts.citing:,} answers cite: {', '.join(parts) or 'all by the ids of documents'}"
        if by_number and form.base is None:
            file.add(base, 0, f"{told}; is [0] the first document, or [1]? Both are seen", is_off=True)
        else:
            file.add(base, form.base if by_number else None if form.are_ids else "titles", told)
    cited = report.fields.get(CITATIONS)
    for gap in report.gaps:
        for table, assignment in _SETTING.findall(gap.remedy):
            try:
                path, entry = _parsed(f"[{table}]\n{assignment}")
            except tomllib.TOMLDecodeError:  # a control character in an answer
                continue
            # A text that is often given and cites nothing is a refusal where answers cite. Elsewhere a person says so.
            is_off = path[:1] == ("refusal",) and (cited is None or cited.present <= HALF * cited.of)
            # Gold and how documents are read are settings of the file as a whole.
            file.add(path if path[0] in ("gold", "capture") else (*scope, *path), entry, gap.finding, is_off=is_off)


def _parsed(text: str) -> tuple[KeyPath, Any]:
    path: KeyPath = ()
    entry: Any = tomllib.loads(text)
    while isinstance(entry, dict) and len(entry) == 1:
        ((key, entry),) = entry.items()
        path = (*path, key)
    return path, entry


def _add_notes(file: _File, report: CaptureReport, seen: _Seen, scope: KeyPath) -> None:
    shown = zip(FIELDS, shares(report.fields), strict=True)
    records = f"{report.records:,} {'record has' if report.records == 1 else 'records have'}"
    has = ", ".join(f"{name} {share}" for name, share in shown if name in report.fields)
    file.add(("capture", ""), None, f"{report.pipeline}, {report.source}: {records} {has}")
    for gap in report.gaps:
        if gap.gates and not _SETTING.search(gap.remedy):
            file.add(("capture", ""), None, f"{report.pipeline}, {report.source}: {gap.finding}: {gap.remedy}")
    ways = {GOLD: "records match an item", GOLD_IDS: "records with ids retrieve a document that gold names"}
    found = [(report.fields[name], what) for name, what in ways.items() if name in report.fields]
    for path in [path for path in file.entries if path[0] == "gold" and path[-1] == "path" and found]:
        told = "; ".join(f"{share.present:,} of {share.of:,} {what}" for share, what in found)
        file.add(path, file.entries[path].entry, f"{report.pipeline}, {report.source}: {told}")
    rates = [
        series.metrics["refusal_rate"]
        for series in seen.series
        if (series.pipeline, series.source, series.gold, series.slice) == (report.pipeline, report.source, "", "")
    ]
    if rates and rates[0].n:
        repeats = seen.state.captured.at(report.pipeline, report.source).repeats.answers.values()
        refused = sorted(
            (answer for answer in repeats if answer.refused), key=lambda answer: (-answer.refused, answer.text)
        )
        texts = [
            f"{printable(answer.text)!r} {'once' if answer.refused == 1 else f'{answer.refused:,} times'}"
            for answer in refused[:_NAMED]
        ]
        told = f"{percent(rates[0].value)} of {rates[0].n:,} requests are refused"
        file.add((*scope, "refusal", ""), None, "; ".join([told, *texts]))


def _add_gate(file: _File, gate: GateSummary, prefix: str) -> None:
    # For all pipelines, with what was seen of each.
    table, is_off = ("gates", gate.gate), gate.value is None
    found = f"{value(gate)} ({bounds_text(gate.lower, gate.upper)}) of {gate.n:,}: {gate.verdict}"
    comment = why(gate) if is_off else found if gate.verdict != "insufficient" else f"{found}, {why(gate)}"
    for key, entry in {"kind": gate.kind, "metric": gate.metric}.items():
        if entry not in ("threshold", gate.gate, "latency", "index_hash"):
            file.add((*table, key), entry, is_off=is_off)
    file.add((*table, gate.direction), gate.threshold, f"{prefix}{comment}", is_off=is_off)
