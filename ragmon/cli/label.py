"""`ragmon label`: import labels that people gave to answers, and list answers that are worth a label."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from ragmon.cli.client import post_json
from ragmon.cli.common import label_spelling, on_terminal, write
from ragmon.config.load import load
from ragmon.config.services import TlsTable, address_of
from ragmon.config.settings import Settings
from ragmon.core import record
from ragmon.core.constants import LABELS_PATH
from ragmon.core.errors import printable_json, printable_line
from ragmon.core.record import Label, Line, Record
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.labels import read_labels, template
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.scoring.ratings import queue, rows
from ragmon.server.reader import JournalReader, open_readonly
from ragmon.server.state import entries

_BATCH_SIZE: Final = 1000
"""How many labels one request sends."""


def import_command(
    files: tuple[str, ...], rater: str | None, dry_run: bool, url: str | None, output: str | None, config: str | None
) -> int:
    """Tell a server what FILES (CSV, JSON Lines) say of answers; each file is taken whole or refused whole."""
    settings = load(config)
    labels = [item for path in files for item in read_labels(path, label_spelling(settings.unconfigured.labels, rater))]
    for line in _summary(labels):
        click.echo(printable_line(line), err=not dry_run)
    if dry_run:
        return 0
    if output is not None:
        write("".join(record.encode(item).decode() for item in labels), output)
        return 0
    accepted = sum(
        _send(labels[start : start + _BATCH_SIZE], url, settings) for start in range(0, len(labels), _BATCH_SIZE)
    )
    click.echo(f"{accepted} labels taken")
    return 0


def _summary(labels: Sequence[Label]) -> Iterator[str]:
    """A summary of labels, in a few lines."""
    correct = [float(label.correct) for label in labels if label.correct is not None]
    raters = Counter(label.rater for label in labels)
    yield f"{len(labels)} labels on {len({label.trace_id for label in labels})} answers"
    yield "raters: " + (", ".join(f"{name} {n}" for name, n in raters.most_common()) or "none")
    if correct:
        yield f"correct: {len(correct)} labels, mean {sum(correct) / len(correct):.3f}"
    for name, values in (
        ("answerable", [label.answerable for label in labels]),
        ("relevant_ids", [label.relevant_ids for label in labels]),
    ):
        if n := sum(label is not None for label in values):
            yield f"{name}: {n} labels"


def _send(labels: Sequence[Label], url: str | None, settings: Settings) -> int:
    """Send labels to a server; return how many it accepted."""
    scheme = "https" if isinstance(settings.serve.tls, TlsTable) else "http"
    address = url or address_of(settings.export.endpoint, os.environ) or f"{scheme}://{settings.serve.otlp}"
    body = [json.loads(record.encode(label)) for label in labels]
    return int(post_json(str(address), LABELS_PATH, body, settings).get("accepted", 0))


def queue_command(
    traces: tuple[str, ...],
    state_dir: str | None,
    limit: int,
    text: bool,
    form: str,
    output: str | None,
    config: str | None,
) -> int:
    """Answers worth a label, as a sheet that `ragmon label import` reads: from TRACES, else from a server's journal."""
    settings = load(config)
    if traces:
        options, spans = file_options(settings), file_span_options(settings)
        candidates = queue(read_files(traces, ReadSummary(), options=options, span_options=spans), limit)
    else:
        with open_readonly(Path(state_dir or settings.serve.state_dir)) as journal:
            candidates = queue(_lines(journal), limit)
    sheet_rows = rows(candidates, settings.unconfigured.links.trace, text=text)
    if form == "csv":
        write(template(sheet_rows, label_spelling(settings.unconfigured.labels)), output)
    else:
        write("".join(printable_json(row) + "\n" for row in sheet_rows), output)
    if candidates and on_terminal(output):
        place = printable_line(" ".join(traces) or f"--state-dir {state_dir or settings.serve.state_dir}")
        click.echo(f"one of them: ragmon show {printable_line(str(candidates[0].trace_id))} {place}", err=True)
    return 0


def _lines(journal: JournalReader) -> Iterator[Line]:
    """The records and labels of a journal."""
    for row in journal.rows():
        yield from (entry for entry in entries(row.lines) if isinstance(entry, Record | Label))
