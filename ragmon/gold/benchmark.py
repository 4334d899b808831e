"""The three files of seed 004: `queries.json`, `qrels.json` (one relevant section a query) and `answers.json`."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import Field

from ragmon.core.gold_item import GoldItem
from ragmon.gold.jsontext import JsonText
from ragmon.gold.shapes import AnyRow, Id, Row, read_row
from ragmon.gold.source import Place, place_of, read_text

NAMES: Final = ("queries.json", "qrels.json", "answers.json")

_log = logging.getLogger("ragmon")


class QueryRow(Row):
    """An entry of `queries.json`."""

    query: str = Field(description="write the question as a string")
    type: str | None = Field(default=None, description="write the kind of query as a string")
    source: str | None = Field(default=None, description="write where the answer stands as a string")


class QrelRow(Row):
    """An entry of `qrels.json`."""

    doc_id: Id | None = Field(default=None, description="write the document's id, a string or an integer")
    section_id: Id | None = Field(default=None, description="write the section's id, a string or an integer")


class Files(NamedTuple):
    """The three files that make one set."""

    queries: Path
    qrels: Path
    answers: Path


def files_in(directory: Path) -> Files:
    """The three files of a directory.

    Raises:
        GoldError: One of them is not there.
    """
    found = []
    for name in NAMES:
        candidates = (directory / name, directory / f"{name}.gz")
        present = next((path for path in candidates if path.exists()), None)
        if present is None:
            hint = f"name a gold file, or a directory that holds {', '.join(NAMES)}"
            raise place_of(directory).error("directory lacks a file", name, hint)
        found.append(present)
    return Files(*found)


def gather(paths: Sequence[str | Path]) -> list[str | Path | Files]:
    """The paths in their order, with directories and triples of files that belong together as one entry."""
    triples = _triples(paths)
    sources: list[str | Path | Files] = []
    for path in paths:
        triple = triples.get(Path(path).parent)
        if Path(path).is_dir():
            sources.append(files_in(Path(path)))
        elif triple is None or Path(path) not in triple:
            sources.append(path)
        elif triple not in sources:
            sources.append(triple)
    return sources


def _triples(paths: Sequence[str | Path]) -> dict[Path, Files]:
    """The complete triples among the paths, by directory."""
    found: dict[Path, dict[str, Path]] = {}
    for path in map(Path, paths):
        found.setdefault(path.parent, {})[path.name.removesuffix(".gz")] = path
    whole = {directory: names for directory, names in found.items() if set(NAMES) <= names.keys()}
    return {directory: Files(*(names[name] for name in NAMES)) for directory, names in whole.items()}


def read_benchmark(files: Files) -> Iterator[tuple[Place, GoldItem]]:
    """One answerable item per query whose relevant section is known.

    Queries without one are left out and counted in the log: nothing could be said about them.

    Raises:
        GoldError: A file is broken.
    """
    qrels = {qid: row for qid, _, row in _rows(files.qrels, QrelRow)}
    answers = _answers(files.answers)
    unusable = total = 0
    for qid, place, row in _rows(files.queries, QueryRow):
        total += 1
        qrel = qrels.get(qid, QrelRow())
        if qrel.doc_id is None or qrel.section_id is None:
            unusable += 1
            continue
        yield place, _item(qid, row, f"{qrel.doc_id}_{qrel.section_id}_", answers.get(qid))
    if unusable:
        _log.warning("%s: %d of %d queries left out, no usable qrel", files.queries, unusable, total)


def _item(qid: str, row: QueryRow, prefix: str, answer: str | None) -> GoldItem:
    tags = {name: value for name, value in (("type", row.type), ("source", row.source)) if value}
    return GoldItem(
        qid=qid, question=row.query, answerable=True, gold_claim=answer or None, sections=(prefix,), tags=tags
    )


def _rows(path: Path, model: type[AnyRow]) -> Iterator[tuple[str, Place, AnyRow]]:
    for name, place, raw in JsonText(str(path), read_text(path)).members():
        if not name.strip():
            raise place.error("query id is empty", name, "give every query a permanent id")
        yield name, place, read_row(model, place, raw)


def _answers(path: Path) -> dict[str, str | None]:
    answers: dict[str, str | None] = {}
    for name, place, raw in JsonText(str(path), read_text(path)).members():
        if raw is not None and not isinstance(raw, str):
            raise place.error(f"answer of {name!r} is not a string", raw, "write the reference answer as one string")
        answers[name] = raw
    return answers
