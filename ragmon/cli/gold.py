"""`ragmon gold`: lint, count, compare and freeze gold files before they are used, and make them of tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from ragmon.cli.options import write
from ragmon.config.load import load
from ragmon.core.constants import NO_GOLD_CITATIONS, NO_GOLD_CLAIM
from ragmon.core.errors import printable_json, printable_line
from ragmon.core.gold_item import GoldItem
from ragmon.core.policy import Gate
from ragmon.core.process import read_key
from ragmon.core.record import Answer, Record
from ragmon.export.text import text_table
from ragmon.ingest.gold import (
    MUTATED,
    SEVERITIES,
    SHOWN,
    Diff,
    GoldSet,
    diff,
    freeze,
    is_frozen,
    lint,
    read_frozen,
    stats,
)
from ragmon.ingest.gold_files import RowReader, as_line, read_items
from ragmon.ingest.tables import TableOptions
from ragmon.monitor.replay import replay

_EXIT_NEGATIVE: Final = 1  # for a set with errors, and for two sets that differ
_LISTED: Final = 10  # findings of a kind, unless they are errors
_LACKS: Final = {
    NO_GOLD_CITATIONS: "no ids of the documents that hold the answer: a column gold_ids or reference_context_ids",
    NO_GOLD_CLAIM: "no phrase that a right answer contains: a column gold_claim_substr",
}
"""What a gold item lacks, by the reason why a metric is unassessed on it."""
_NO_UNANSWERABLE: Final = "no question that has no answer: a column answerable, or --empty-reference unanswerable"


def lint_command(ctx: click.Context, paths: tuple[str, ...], form: str, config: str | None) -> None:
    """Report what is wrong or unwise in a gold set; each set of the configuration is one."""
    settings = load(config)
    owners = {Path(file).resolve(): index for index, spec in enumerate(settings.gold) for file in spec.path}
    sets: dict[int | None, list[str]] = {}
    for path in paths:
        sets.setdefault(owners.get(Path(path).resolve()), []).append(path)
    errors = [_lint(GoldSet.load(files), settings.gates(), form) for files in sets.values()]
    if any(errors):
        ctx.exit(_EXIT_NEGATIVE)


def _lint(gold_set: GoldSet, gates: Sequence[Gate], form: str) -> int:
    """Report what is wrong or unwise in one gold set; returns the number of errors."""
    findings = lint(gold_set, gates)
    counts = Counter(finding.severity for finding in findings)
    if form == "json":
        lint_result = {
            "name": gold_set.name,
            "version": gold_set.version,
            "items": len(gold_set),
            "counts": {severity: counts[severity] for severity in SEVERITIES},
            "findings": [asdict(finding) for finding in findings],
        }
        _print_json(lint_result)
        return counts["error"]
    for (severity, hint), group in groupby(findings, key=lambda finding: (finding.severity, finding.hint)):
        same_kind = list(group)
        listed = same_kind if severity == "error" else same_kind[:_LISTED]
        for finding in listed:
            prefix = "" if finding.qid is None else f"{printable_line(finding.qid)}: "
            click.echo(printable_line(f"{severity}: {prefix}{finding.message}"))
        if more := len(same_kind) - len(listed):
            click.echo(f"{severity}: … and {more} more like these (--format json lists them all)")
        click.echo(f"  hint: {printable_line(hint)}")
    totals = ", ".join(f"{severity} {counts[severity]}" for severity in SEVERITIES)
    click.echo(f"{len(gold_set)} items: {totals}")
    return counts["error"]


def stats_command(paths: tuple[str, ...], form: str) -> None:
    """Count what a gold set holds."""
    counts = stats(GoldSet.load(paths))
    if form == "json":
        _print_json(counts)
        return
    rows = [(name, str(value)) for name, value in counts.items() if name != "tags"]
    for tag, values in counts["tags"].items():
        rows += [("tag", f"{printable_line(tag)}={printable_line(value)} {n}") for value, n in values.items()]
    click.echo("\n".join(text_table(rows)))


def freeze_command(
    ctx: click.Context, paths: tuple[str, ...], key_file: str | None, output: str | None, frozen: str | None
) -> None:
    """Write the fingerprints of a gold set, for `[gold.NAME] frozen = "…"`: other files are refused from then on."""
    key = _read_key(key_file)
    if frozen is not None:
        if output is not None:
            raise click.UsageError("--output does not go with --check, which writes nothing", ctx)
        _print_diff(ctx, diff(read_frozen(frozen, key), GoldSet.load(paths)), "text")
        return
    file = freeze(GoldSet.load(paths), key)
    write(printable_json(file, indent=1) + "\n", output)
    unsigned = "not signed: a digest without a key only detects accidental changes"
    signature = unsigned if key is None else "signed with HMAC-SHA256"
    click.echo(f"version {file['version'][:SHOWN]} of {file['items']} items, {signature}", err=True)


def diff_command(ctx: click.Context, old: str, new: str, key_file: str | None, form: str) -> None:
    """List what changed between two versions of a gold set; either may be what was frozen of one."""
    key = _read_key(key_file)
    old_set, new_set = (read_frozen(path, key) if is_frozen(path) else GoldSet.load(path) for path in (old, new))
    _print_diff(ctx, diff(old_set, new_set), form)


def from_table_command(path: str, tables: TableOptions, empty_reference: str | None, output: str | None) -> int:
    """Write a gold file of a table (CSV, TSV, Parquet, XLSX, JSON) of questions and what is right."""
    reader = RowReader(options=tables, empty_reference=empty_reference)
    gold_set = GoldSet("gold", read_items([path], reader))
    write("".join(printable_json(as_line(item)) + "\n" for item in gold_set), output)
    for line in _assessment(gold_set, reader.skipped):
        click.echo(line, err=True)
    return 0


def _assessment(gold_set: GoldSet, skipped: int) -> Iterator[str]:
    answerable = sum(item.answerable for item in gold_set)
    left_out = f"; skipped without a reference: {skipped}" if skipped else ""
    yield f"items {len(gold_set)}: {answerable} answerable, {len(gold_set) - answerable} not{left_out}"
    snapshot = replay(map(_right_answer, gold_set), gold_set).snapshot
    metrics = next((series.metrics for series in snapshot.series if series.gold), {})
    groups: dict[tuple[int, int, str], list[str]] = {}
    for name in snapshot.gold_metrics:
        stat = metrics.get(name)
        if stat is not None and "@" not in name and name != "answer_correct":  # which people say, not gold
            lacks = "; ".join(_LACKS.get(reason, reason) for reason in sorted(stat.unassessed))
            missing = sum(stat.unassessed.values())
            if not stat.n and not missing:
                missing, lacks = 1, _NO_UNANSWERABLE if name == "under_refusal_rate" else _LACKS[NO_GOLD_CITATIONS]
            key = (stat.n, missing, lacks) if missing and stat.n else (-1 if missing else 0, 0, lacks)
            groups.setdefault(key, []).append(name)
    for (n, missing, lacks), names in sorted(groups.items(), reverse=True):
        heading = "judged on all their items" if not lacks else f"{n} of {n + missing} items" if n > 0 else "not judged"
        yield f"{heading}: {', '.join(sorted(names))}{lacks and f' ({lacks})'}"


def _right_answer(item: GoldItem) -> Record:
    # It lacks nothing a metric needs; unanswerable questions are answered, for their rate.
    ids = list(item.citations or ["a document"])
    texts = list(item.contexts or [item.gold_claim or "a passage"])
    claim = next(iter(item.claim_substrings or ()), item.gold_claim) or "an answer"
    answer = Answer(claim=claim, citations=ids)
    return Record(
        qid=item.qid, q=item.question, retrieved_ids=ids, candidate_ids=ids, contexts=texts, answer_json=answer
    )


def _read_key(path: str | None) -> bytes | None:
    return None if path is None else read_key(Path(path), "--key-file")


def _print_diff(ctx: click.Context, difference: Diff, form: str) -> None:
    if form == "json":
        changed = [{**asdict(change), "mutated": change.mutated} for change in difference.changed]
        _print_json({**asdict(difference), "changed": changed, "same": difference.same})
    else:
        lines = [f"added: {printable_line(qid)}" for qid in difference.added]
        lines += [f"removed: {printable_line(qid)}" for qid in difference.removed]
        for change in difference.changed:
            fields = f": {', '.join(change.fields)}" if change.fields else ""
            lines.append(f"changed: {printable_line(change.qid)}{fields}{f' ({MUTATED})' if change.mutated else ''}")
        numbers = [len(difference.added), len(difference.removed), len(difference.changed), difference.unchanged]
        counts = "{} added, {} removed, {} changed, {} unchanged".format(*numbers)
        versions = f"version {difference.old_version[:8]} -> {difference.new_version[:8]}"
        click.echo("\n".join([*lines, f"{counts}: {versions}"]))
    if not difference.same:
        ctx.exit(_EXIT_NEGATIVE)


def _print_json(value: object) -> None:
    click.echo(printable_json(value, indent=2))
