"""Reading gold files: the shape of each file is recognised by its content; all files are accepted or none.

| shape | recognised by |
|---|---|
| WFGY eval page (seed 000) | JSON Lines: `qid`, `question`, `answerable`, `gold_claim_substr`, `gold_citations` |
| WFGY Example 08 (seed 002) | a JSON array: `qid`, `q`, `answerable`, `gold_ids`, `gold_claim` |
| AdalFlow (seed 003) | rows with `gold_contexts`, the passages themselves |
| ResearchMate (seed 004) | a directory: `queries.json`, `qrels.json` (one relevant section a query), `answers.json` |
| WFGY chunking page | rows with `relevant`, `paraphrases`, `negatives`, `anchor_section` (read, not scored) |
| TREC qrels | `qid iteration docid relevance`, separated by white space |
| a table | CSV, TSV, Parquet, XLSX (`ragmon.tabular`), with a column of questions and one of what is right |
| Ragas, DeepEval | rows of JSON with `reference`, `ground_truth` or `expected_output` in place of `gold_claim` |

The row shapes may be mixed, and every row may have `tags`, `paraphrases`, `negatives` and `constraints`.
`answerable` is required, except where `relevant` or `gold_contexts` shows that there is an answer. In the last two
shapes a reference shows it, too, and a question without qid gets one (`ragmon.tabular.gold.question_id`).
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragmon.core.errors import GoldError
from ragmon.core.gold_item import GoldItem
from ragmon.gold.schema import RowField, RowFields, id_string, read_row, string
from ragmon.gold.strict_json import SHAPES, STDIN, JsonLocation, JsonText, as_text, file_location, read_bytes, read_text
from ragmon.gold.tables import RowReader, refuse_row
from ragmon.tabular.files import binary_table, csv_table, is_header, table_format

NAMES: Final = ("queries.json", "qrels.json", "answers.json")

_log = logging.getLogger("ragmon")


_QUERY_ROW: Final[RowFields] = {
    "query": RowField(string, "write the question as a string", is_required=True),
    "type": RowField(string, "write the kind of query as a string"),
    "source": RowField(string, "write where the answer stands as a string"),
}
"""An entry of `queries.json`."""
_QREL_ROW: Final[RowFields] = {
    "doc_id": RowField(id_string, "write the document's id, a string or an integer"),
    "section_id": RowField(id_string, "write the section's id, a string or an integer"),
}
"""An entry of `qrels.json`."""


class BenchmarkFiles(NamedTuple):
    """The three files that make one gold set of the seed 004 shape."""

    queries: Path
    qrels: Path
    answers: Path


def files_in(directory: Path) -> BenchmarkFiles:
    """The three files of a directory.

    Raises:
        GoldError: One of them does not exist.
    """
    files = []
    for name in NAMES:
        candidates = (directory / name, directory / f"{name}.gz")
        path = next((p for p in candidates if p.exists()), None)
        if path is None:
            hint = f"name a gold file, or a directory that holds {', '.join(NAMES)}"
            raise file_location(directory).error("directory lacks a file", name, hint)
        files.append(path)
    return BenchmarkFiles(*files)


def group_files(paths: Sequence[str | Path]) -> list[str | Path | BenchmarkFiles]:
    """The paths in their order; a directory, or three files that belong together, become one entry."""
    triples = _triples(paths)
    sources: list[str | Path | BenchmarkFiles] = []
    for path in paths:
        triple = triples.get(Path(path).parent)
        if Path(path).is_dir():
            sources.append(files_in(Path(path)))
        elif triple is None or Path(path) not in triple:
            sources.append(path)
        elif triple not in sources:
            sources.append(triple)
    return sources


def _triples(paths: Sequence[str | Path]) -> dict[Path, BenchmarkFiles]:
    """The complete triples of files among the paths, by directory."""
    by_directory: dict[Path, dict[str, Path]] = {}
    for path in map(Path, paths):
        by_directory.setdefault(path.parent, {})[path.name.removesuffix(".gz")] = path
    complete = {directory: names for directory, names in by_directory.items() if set(NAMES) <= names.keys()}
    return {directory: BenchmarkFiles(*(names[name] for name in NAMES)) for directory, names in complete.items()}


def read_benchmark(files: BenchmarkFiles) -> Iterator[tuple[JsonLocation, GoldItem]]:
    """One answerable item for each query whose relevant section is known.

    Other queries are left out and their number is logged: they cannot be scored.

    Raises:
        GoldError: A file is broken.
    """
    qrels = {qid: row for qid, _, row in _rows(files.qrels, _QREL_ROW)}
    answers = _answers(files.answers)
    unusable = total = 0
    for qid, place, row in _rows(files.queries, _QUERY_ROW):
        total += 1
        qrel = qrels.get(qid, {})
        if len(qrel) < len(_QREL_ROW):
            unusable += 1
            continue
        yield place, _item(qid, row, f"{qrel['doc_id']}_{qrel['section_id']}_", answers.get(qid))
    if unusable:
        _log.warning("%s: %d of %d queries left out, no usable qrel", files.queries, unusable, total)


def _item(qid: str, row: Mapping[str, str], prefix: str, answer: str | None) -> GoldItem:
    tags = {name: row[name] for name in ("type", "source") if row.get(name)}
    return GoldItem(
        qid=qid, question=row["query"], answerable=True, gold_claim=answer or None, sections=(prefix,), tags=tags
    )


def _rows(path: Path, fields: RowFields) -> Iterator[tuple[str, JsonLocation, dict[str, Any]]]:
    for name, place, raw in JsonText(str(path), read_text(path)).members():
        if not name.strip():
            raise place.error("query id is empty", name, "give every query a permanent id")
        yield name, place, read_row(fields, place, raw)


def _answers(path: Path) -> dict[str, str | None]:
    answers: dict[str, str | None] = {}
    for name, place, raw in JsonText(str(path), read_text(path)).members():
        if raw is not None and not isinstance(raw, str):
            raise place.error(f"answer of {name!r} is not a string", raw, "write the reference answer as one string")
        answers[name] = raw
    return answers


_COLUMNS: Final = 4
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_HINT: Final = "write qid, iteration, docid and relevance, separated by spaces: 301 0 FR940202-2-00150 1"


def looks_like_qrels(line: str) -> bool:
    """Whether a line has the four columns of a relevance judgement."""
    return len(line.split()) == _COLUMNS


def read_qrels(path: str, text: str) -> Iterator[tuple[JsonLocation, GoldItem]]:
    """One answerable item per query id, without question text, in the order of the file.

    A relevance above zero is relevant, whatever its grade.

    Raises:
        GoldError: A line is not a judgement, or judges a document a second time.
    """
    first_location: dict[str, JsonLocation] = {}
    judged: dict[tuple[str, str], JsonLocation] = {}
    relevant: dict[str, list[str]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = JsonLocation(path, number)
        qid, docid, relevance = _judgement(line, place)
        earlier = judged.setdefault((qid, docid), place)
        if earlier is not place:
            raise place.error(f"judged twice, first on line {earlier.line}", f"{qid} {docid}", "keep one of them")
        first_location.setdefault(qid, place)
        relevant.setdefault(qid, []).extend([docid] if relevance > 0 else [])
    for qid, ids in relevant.items():
        yield first_location[qid], GoldItem(qid=qid, question="", answerable=True, citations=tuple(ids) or None)


def _judgement(line: str, place: JsonLocation) -> tuple[str, str, int]:
    columns = line.split()
    if len(columns) != _COLUMNS:
        raise place.error(f"{len(columns)} columns instead of {_COLUMNS}", line.strip(), _HINT)
    qid, _, docid, relevance = columns
    if not _INTEGER.fullmatch(relevance):
        raise place.error("relevance is not an integer", relevance, _HINT)
    return qid, docid, int(relevance)


Paths = str | Path | Sequence[str | Path]


def as_paths(path: Paths) -> tuple[str | Path, ...]:
    """One path or several, as a tuple."""
    return (path,) if isinstance(path, (str, Path)) else tuple(path)


def set_name(paths: Sequence[str | Path]) -> str:
    """The default name of a set: its first file, or the directory of the seed 004 files."""
    first = Path(paths[0])
    if str(first) == STDIN:
        return "stdin"
    bare = first.name.removesuffix(".gz")
    if bare in NAMES:
        return first.resolve().parent.name
    return first.resolve().name if first.is_dir() else Path(bare).stem


def read_items(paths: Sequence[str | Path], reader: RowReader) -> tuple[GoldItem, ...]:
    """Read the items of all files, in their order.

    Args:
        paths: At least one file or directory.
        reader: Reads the rows.

    Raises:
        GoldError: One of the files is broken or empty, or a qid appears twice.
    """
    if not paths:
        raise GoldError("no gold file given", hint=SHAPES)
    first_location: dict[str, JsonLocation] = {}
    items: list[GoldItem] = []
    for source in group_files(paths):
        before = len(items)
        for place, item in _read(source, reader):
            earlier = first_location.setdefault(item.qid, place)
            if earlier is not place:
                raise _duplicate_error(item, place, earlier)
            items.append(item)
        if len(items) == before:
            file = file_location(source.queries if isinstance(source, BenchmarkFiles) else source)
            raise file.error("holds no item", hint=SHAPES)
    return tuple(items)


def _duplicate_error(item: GoldItem, place: JsonLocation, earlier: JsonLocation) -> GoldError:
    where = f"on line {earlier.line}" if earlier.path == place.path else f"in {earlier.path}:{earlier.line}"
    return place.error(f"qid appears twice, first {where}", item.qid, "qids are permanent: give one question a new one")


def _read(source: str | Path | BenchmarkFiles, reader: RowReader) -> Iterator[tuple[JsonLocation, GoldItem]]:
    if isinstance(source, BenchmarkFiles):
        return read_benchmark(source)
    path, kind = file_location(source).path, table_format(source)
    if kind in ("parquet", "xlsx"):
        return reader.table(binary_table(path, kind, reader.options), path)
    raw = read_bytes(source)
    if kind == "csv" or is_header(raw.lstrip().partition(b"\n")[0], reader.options):
        return reader.table(csv_table(io.BytesIO(raw), path, reader.options, refuse_row(path)), path)
    text = as_text(raw, path)
    start = text.lstrip()
    if not start.startswith(("[", "{")) and looks_like_qrels(start.partition("\n")[0]):
        return read_qrels(path, text)
    rows = JsonText(path, text).array() if start.startswith("[") else JsonText.lines(path, text)
    return reader.objects(rows)
