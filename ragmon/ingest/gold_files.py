"""Gold files, read strictly: all files of a set are accepted or none, and every error names the file and the line.

The shape of a file is recognised by its content:

| shape | recognised by |
|---|---|
| WFGY eval page (seed 000) | JSON Lines: `qid`, `question`, `answerable`, `gold_claim_substr`, `gold_citations` |
| WFGY Example 08 (seed 002) | a JSON array: `qid`, `q`, `answerable`, `gold_ids`, `gold_claim` |
| AdalFlow (seed 003) | rows with `gold_contexts`, the passages themselves |
| ResearchMate (seed 004) | a directory: `queries.json`, `qrels.json` (one relevant section a query), `answers.json` |
| WFGY chunking page | rows with `relevant`, `paraphrases`, `negatives`, `anchor_section` (read, not scored) |
| TREC qrels | `qid iteration docid relevance`, separated by white space |
| BEIR | qrels in columns, and `queries.jsonl` beside them or in the folder around, which has the questions |
| a table | CSV, TSV, Parquet, XLSX (`ragmon.ingest.tables`), with a column of questions and one of what is right |
| Ragas, DeepEval | rows of JSON with `reference`, `ground_truth` or `expected_output` in location of `gold_claim` |
| data sets and tools | documents and rows that `ragmon.ingest.datasets` knows |

The row shapes may be mixed, and every row may have `tags`, `paraphrases`, `negatives` and `constraints`. Unknown fields
are ignored, unless they look like a misspelt known one: a misspelt `answerable` must not be read as something else.
`answerable` is required, except where `relevant` or `gold_contexts` shows that there is an answer. In the last two
shapes a reference shows it, too, and a question without qid gets one (`ragmon.ingest.tables.question_id`).
"""

from __future__ import annotations

import codecs
import difflib
import gzip
import io
import json
import logging
import math
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from ragmon.core.constants import EMPTY_REFERENCE
from ragmon.core.errors import GoldError, InputError
from ragmon.core.gold_item import GoldItem, Match
from ragmon.core.json_schema import DRAFT, Schema, identifier
from ragmon.ingest.cells import CellError
from ragmon.ingest.datasets import UnreadAssertionError, adapted, judgement, rows_of
from ragmon.ingest.tables import (
    TRACES_AS_GOLD,
    TRACES_HINT,
    USUAL,
    MissingReferenceError,
    TableOptions,
    TableRows,
    binary_table,
    check_gold,
    csv_table,
    gold_fields,
    has_reference,
    is_header,
    is_trace,
    table_format,
)

STDIN: Final = "-"
STDIN_NAME: Final = "<stdin>"
SHAPES: Final = (
    "a gold file is JSON Lines (one object a line), one JSON array of objects, TREC qrels, or a directory holding "
    "queries.json, qrels.json and answers.json"
)
_GZIP: Final = b"\x1f\x8b"


class JsonLocation(NamedTuple):
    """A line of a file; no line where the whole file is meant."""

    path: str
    line: int | None = None

    def error(self, message: str, value: object = None, hint: str = "") -> GoldError:
        """The error about the value at this location."""
        return GoldError(message, path=self.path, line=self.line, value=value, hint=hint)


def _file_location(path: str | Path) -> JsonLocation:
    return JsonLocation(STDIN_NAME if str(path) == STDIN else str(path))


def _read_bytes(path: str | Path) -> bytes:
    """The decompressed bytes of a file, plain or gzip; `-` is standard input."""
    location = _file_location(path)
    try:
        raw = sys.stdin.buffer.read() if str(path) == STDIN else Path(path).read_bytes()
    except FileNotFoundError as error:
        raise location.error("no such file", hint=f"{SHAPES}; - is standard input") from error
    except IsADirectoryError as error:
        raise location.error("is a directory, not a file", hint=SHAPES) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise location.error(f"cannot be read: {reason}", hint="name a file this user may read") from error
    if not raw.startswith(_GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, OSError, zlib.error) as error:
        raise location.error(
            f"broken gzip file: {error}", hint="compress the file again, or name the plain one"
        ) from error


def _as_text(raw: bytes, path: str) -> str:
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        location = JsonLocation(path, raw.count(b"\n", 0, error.start) + 1)
        raise location.error("not UTF-8", raw[error.start : error.end], "save the file as UTF-8") from error


_SPACE: Final = " \t\n\r"
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_HINT: Final = "write one JSON object a line, or one JSON array of objects"


class _RejectedError(ValueError):
    """A value the standard decoder would accept."""

    def __init__(self, message: str, value: object, hint: str) -> None:
        super().__init__(message)
        self.value = value
        self.hint = hint


class _JsonText:
    """A cursor over strict JSON that knows the line of every element.

    Beyond the decoder of the standard library it rejects NaN and infinities, a name given twice in one object, and
    unpaired surrogates: programs read a gold file with any of these differently.
    """

    def __init__(self, path: str, text: str, first_line: int = 1) -> None:
        self._path = path
        self._text = text
        self._at = 0
        self._line = first_line

    @classmethod
    def of_file(cls, path: Path) -> _JsonText:
        return cls(str(path), _as_text(_read_bytes(path), str(path)))

    @classmethod
    def lines(cls, path: str, text: str) -> Iterator[tuple[JsonLocation, Any]]:
        """The values of JSON Lines, each with its location; blank lines are skipped."""
        # Not splitlines(): U+2028 and similar characters may occur inside a JSON string.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip(_SPACE):
                cursor = cls(path, line, number)
                yield cursor._value()
                cursor._end()

    def array(self) -> Iterator[tuple[JsonLocation, Any]]:
        """The elements of the text, which must be one array, each with its location."""
        for _ in self._elements("[", "]"):
            yield self._value()

    def members(self) -> Iterator[tuple[str, JsonLocation, Any]]:
        """The members of the text, which must be one object: name, location, value."""
        earlier: dict[str, JsonLocation] = {}
        for _ in self._elements("{", "}"):
            if self._peek() != '"':
                self._reject("a name in double quotes belongs here", self._at)
            location, name = self._value()
            if name in earlier:
                raise location.error(
                    f"name appears twice, first on line {earlier[name].line}", name, "keep one of them"
                )
            earlier[name] = location
            self._expect(":")
            yield name, location, self._value()[1]

    def _elements(self, opening: str, closing: str) -> Iterator[None]:
        """Stop before every element, so that the caller can read it."""
        self._expect(opening)
        if self._peek() != closing:
            yield
            while self._peek() == ",":
                self._expect(",")
                yield
        self._expect(closing)
        self._end()

    def _value(self) -> tuple[JsonLocation, Any]:
        self._peek()
        start, location = self._at, JsonLocation(self._path, self._line)
        try:
            value, end = _DECODER.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            self._reject(error.msg, error.pos)
        except _RejectedError as rejected:
            raise location.error(str(rejected), rejected.value, rejected.hint) from rejected
        except RecursionError as deep:
            raise location.error("nested too deeply", hint=_HINT) from deep
        except ValueError as number:  # Python does not parse integers of thousands of digits
            raise location.error(f"number cannot be read: {number}", hint="write long ids as strings") from number
        if _SURROGATE.search(self._text, start, end):
            # Reject unpaired surrogates, without recursion: the value may be nested as deeply as the decoder allows.
            stack = [value]
            while stack:
                node = stack.pop()
                if isinstance(node, dict):
                    stack += [*node.keys(), *node.values()]
                elif isinstance(node, list):
                    stack += node
                elif isinstance(node, str) and any("\ud800" <= char <= "\udfff" for char in node):
                    hint = "write the character itself, or both halves of its pair"
                    raise location.error("half of a surrogate pair is not a character", node, hint)
        self._advance(end)
        return location, value

    def _expect(self, char: str) -> None:
        if self._peek() != char:
            self._reject(f"{char!r} belongs here", self._at)
        self._advance(self._at + 1)

    def _end(self) -> None:
        if self._peek():
            self._reject("nothing may follow here", self._at)

    def _peek(self) -> str:
        """The next character that is not white space; "" at the end."""
        end = self._at
        while end < len(self._text) and self._text[end] in _SPACE:
            end += 1
        self._advance(end)
        return self._text[end : end + 1]

    def _advance(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _reject(self, message: str, at: int) -> NoReturn:
        line = self._line + self._text.count("\n", self._at, at)
        column = at - self._text.rfind("\n", 0, at)
        rest = self._text[at:].partition("\n")[0].strip()
        location = JsonLocation(self._path, line)
        raise location.error(f"not JSON at column {column}, {message[0].lower()}{message[1:]}", rest or None, _HINT)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = {name: _known(value) for name, value in pairs}
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise _RejectedError("name appears twice in one object", duplicate, "keep one of them")
    return members


def _known(value: Any) -> Any:
    """A member without what pandas writes for values that are absent: NaN, and numbers that no float holds."""
    if isinstance(value, list):
        return [entry for entry in value if not isinstance(entry, float) or math.isfinite(entry)]
    return None if isinstance(value, float) and not math.isfinite(value) else value


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_object)


_MISSPELT: Final = 0.85
"""Similarity from which a name counts as misspelt; `answer` (0.75) and `id` (0.80) stay free for other uses."""

_QUESTION: Final = ("question", "q", "query")
_CITATIONS: Final = ("gold_citations", "gold_ids", "relevant")


class _WrongValueError(ValueError):
    """A value of the wrong type, or an empty one, and where in the field it stands, such as `[0]`."""

    def __init__(self, problem: str, value: object) -> None:
        super().__init__("is null" if value is None else problem)
        self.path = ""
        self.value = value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise _WrongValueError("is not a string", value)
    return value


def _text(value: Any) -> str:
    # An empty phrase would occur in every answer.
    if not _string(value).strip():
        raise _WrongValueError("is empty", value)
    return str(value)


def _id(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and value % 1 == 0:
        return str(int(value))  # pandas writes 12.0 for 12
    if not isinstance(value, str):
        raise _WrongValueError("is neither a string nor an integer", value)
    return _text(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _WrongValueError("is not a boolean", value)
    return value


def _list(read: Callable[[Any], str], value: Any) -> list[str]:
    if not isinstance(value, list):
        raise _WrongValueError("is not a list", value)
    return [_read_entry(read, entry, index) for index, entry in enumerate(value)]


_ids: Final = partial(_list, _id)
_texts: Final = partial(_list, _text)


def _strings(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise _WrongValueError("is not an object", value)
    return {_string(name): _read_entry(_string, entry, name) for name, entry in value.items()}


def _read_entry(read: Callable[[Any], str], entry: Any, key: int | str) -> str:
    try:
        return read(entry)
    except _WrongValueError as wrong:
        wrong.path = f"[{key!r}]"
        raise


class RowField(NamedTuple):
    """A field of a row: how its value is read, and what would be right; a required one is neither null nor absent."""

    read: Callable[[Any], Any]
    hint: str
    is_required: bool = False


_QUESTION_HINT: Final = "write the question as a string"
_IDS_HINT: Final = 'write a list of ids: ["p1#2"]'
GOLD_ROW: Final[Mapping[str, RowField]] = {
    "qid": RowField(
        _id, 'give every item a permanent id, a non-empty string or an integer: "qid": "A0001"', is_required=True
    ),
    "question": RowField(_string, _QUESTION_HINT),
    "q": RowField(_string, _QUESTION_HINT),
    "query": RowField(_string, _QUESTION_HINT),
    "answerable": RowField(_flag, 'write true or false, without quotes: "answerable": true'),
    "gold_claim_substr": RowField(_texts, 'write a list of phrases: ["rejects null keys"]'),
    "gold_claim": RowField(_string, "write the reference answer as one string"),
    "gold_citations": RowField(_ids, _IDS_HINT),
    "gold_ids": RowField(_ids, _IDS_HINT),
    "relevant": RowField(_ids, _IDS_HINT),
    "gold_contexts": RowField(_texts, "write a list of passages"),
    "anchor_section": RowField(_id, "write the section's id, a string or an integer"),
    "tags": RowField(_strings, 'write an object of strings: {"lang": "de"}'),
    "paraphrases": RowField(_texts, "write a list of questions"),
    "negatives": RowField(_ids, _IDS_HINT),
    "constraints": RowField(_texts, "write a list of statements"),
}
"""One question in any of the one-row-per-question shapes."""


def _read_row(fields: Mapping[str, RowField], location: JsonLocation, raw: Any) -> dict[str, Any]:
    """The values of one JSON object by field, without fields that are absent or null."""
    if not isinstance(raw, dict):
        raise location.error("not a JSON object", raw, SHAPES)
    for name in raw:
        if name not in fields and (intended := _intended_field(name, tuple(fields))):
            raise location.error("misspelt field", name, f"did you mean {intended}?")
    row = {}
    for name, field in fields.items():
        value = raw.get(name)
        if value is None and not field.is_required:
            continue
        if name not in raw:
            raise location.error(f"{name} is missing", hint=field.hint)
        try:
            row[name] = field.read(value)
        except _WrongValueError as wrong:
            raise location.error(f"{name}{wrong.path} {wrong}", wrong.value, field.hint) from wrong
    return row


@lru_cache(maxsize=256)
def _intended_field(name: str, field_names: tuple[str, ...]) -> str | None:
    plain = re.sub(r"[\W_]", "", name).casefold()
    equal = [field for field in field_names if field.replace("_", "") == plain]
    return next(iter(equal or difflib.get_close_matches(name.casefold(), field_names, n=1, cutoff=_MISSPELT)), None)


def _is_misspelt(name: str) -> bool:
    return name not in GOLD_ROW and _intended_field(name, tuple(GOLD_ROW)) is not None


def _read_item(location: JsonLocation, raw: Any, match: Match) -> GoldItem:
    """The gold item of one row."""
    row = _read_row(GOLD_ROW, location, raw)
    if raw.get("citations") and row.keys().isdisjoint((*_CITATIONS, "gold_contexts", "anchor_section")):
        hint = "gold_citations: the ids of the documents that hold the answer; citations are those of an answer"
        raise location.error("citations is not a field of gold", raw["citations"], hint)
    question = _first_given(row, _QUESTION, location) or ""
    # The shapes for retrieval alone have no `answerable`: they name the documents that hold the answer.
    answerable = row.get("answerable", bool(row.get("relevant") or row.get("gold_contexts")) or None)
    if answerable is None:
        raise location.error("answerable is missing", hint=GOLD_ROW["answerable"].hint)
    return GoldItem(
        qid=row["qid"],
        question=question,
        answerable=answerable,
        claim_substrings=_tuple_or_none(row.get("gold_claim_substr")),
        gold_claim=row.get("gold_claim") or None,
        citations=_tuple_or_none(_first_given(row, _CITATIONS, location)),
        contexts=_tuple_or_none(row.get("gold_contexts")),
        tags=row.get("tags", {}),
        paraphrases=tuple(row.get("paraphrases", ())),
        negatives=tuple(row.get("negatives", ())),
        constraints=tuple(row.get("constraints", ())),
        match=match,
    )


def _tuple_or_none(values: list[str] | None) -> tuple[str, ...] | None:
    # An absent list, null and [] mean the same, so they must give the same version.
    return tuple(values) if values else None


def _first_given(row: Mapping[str, Any], names: tuple[str, ...], location: JsonLocation) -> Any:
    """The value of a field that has several names; if more than one is given, the values must be equal."""
    given = {name: row[name] for name in names if name in row}
    values = list(given.values())
    for value in values[1:]:
        if value != values[0]:
            raise location.error(f"{' and '.join(given)} differ", value, "these are two names of one field: keep one")
    return values[0] if values else None


_NAMES: Final = ("queries.json", "qrels.json", "answers.json")

_log = logging.getLogger("ragmon")


_QUERY_ROW: Final[Mapping[str, RowField]] = {
    "query": RowField(_string, "write the question as a string", is_required=True),
    "type": RowField(_string, "write the kind of query as a string"),
    "source": RowField(_string, "write where the answer stands as a string"),
}
_QREL_ROW: Final[Mapping[str, RowField]] = {
    "doc_id": RowField(_id, "write the document's id, a string or an integer"),
    "section_id": RowField(_id, "write the section's id, a string or an integer"),
}


class _BenchmarkFiles(NamedTuple):
    """The three files that make one gold set of the seed 004 shape."""

    queries: Path
    qrels: Path
    answers: Path


def _group_files(paths: Sequence[str | Path]) -> list[str | Path | _BenchmarkFiles]:
    """The paths in their order; a directory, or three files that belong together, become one entry."""
    by_directory: dict[Path, dict[str, Path]] = {}
    for file in map(Path, paths):
        by_directory.setdefault(file.parent, {})[file.name.removesuffix(".gz")] = file
    sources: list[str | Path | _BenchmarkFiles] = []
    for path in paths:
        directory = Path(path)
        together = by_directory[directory.parent]
        if directory.is_dir():
            files = []
            for name in _NAMES:
                found = [file for file in (directory / name, directory / f"{name}.gz") if file.exists()]
                if not found:
                    hint = f"name a gold file, or a directory that holds {', '.join(_NAMES)}"
                    raise _file_location(directory).error("directory lacks a file", name, hint)
                files.append(found[0])
            sources.append(_BenchmarkFiles(*files))
        elif set(_NAMES) <= together.keys() and directory in (files := [together[name] for name in _NAMES]):
            benchmark = _BenchmarkFiles(*files)
            sources += [benchmark] if benchmark not in sources else []
        else:
            sources.append(path)
    return sources


def _read_benchmark(files: _BenchmarkFiles) -> Iterator[tuple[JsonLocation, GoldItem]]:
    """One answerable item for each query whose relevant section is known.

    Other queries are left out and their number is logged: they cannot be scored.
    """
    qrels = {qid: row for qid, _, row in _rows(files.qrels, _QREL_ROW)}
    answers: dict[str, str | None] = {}
    for name, location, answer in _JsonText.of_file(files.answers).members():
        if answer is not None and not isinstance(answer, str):
            hint = "write the reference answer as one string"
            raise location.error(f"answer of {name!r} is not a string", answer, hint)
        answers[name] = answer
    unusable = total = 0
    for qid, location, row in _rows(files.queries, _QUERY_ROW):
        total += 1
        qrel = qrels.get(qid, {})
        if len(qrel) < len(_QREL_ROW):
            unusable += 1
            continue
        item = GoldItem(
            qid=qid,
            question=row["query"],
            answerable=True,
            gold_claim=answers.get(qid) or None,
            sections=(f"{qrel['doc_id']}_{qrel['section_id']}_",),
            tags={name: row[name] for name in ("type", "source") if row.get(name)},
        )
        yield location, item
    if unusable:
        _log.warning("%s: %d of %d queries left out, no usable qrel", files.queries, unusable, total)


def _rows(path: Path, fields: Mapping[str, RowField]) -> Iterator[tuple[str, JsonLocation, dict[str, Any]]]:
    for name, location, raw in _JsonText.of_file(path).members():
        if not name.strip():
            raise location.error("query id is empty", name, "give every query a permanent id")
        yield name, location, _read_row(fields, location, raw)


_COLUMNS: Final = 4
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_QRELS_HINT: Final = "write qid, iteration, docid and relevance, separated by spaces: 301 0 FR940202-2-00150 1"


def _read_qrels(path: str, text: str) -> Iterator[tuple[JsonLocation, GoldItem]]:
    """One answerable item per query id, without question text, in the order of the file.

    A relevance above zero is relevant, whatever its grade.
    """
    first_location: dict[str, JsonLocation] = {}
    judged: dict[tuple[str, str], JsonLocation] = {}
    relevant: dict[str, list[str]] = {}
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        location = JsonLocation(path, number)
        columns = line.split()
        if len(columns) != _COLUMNS:
            raise location.error(f"{len(columns)} columns instead of {_COLUMNS}", line.strip(), _QRELS_HINT)
        qid, _, docid, relevance = columns
        if not _INTEGER.fullmatch(relevance):
            raise location.error("relevance is not an integer", relevance, _QRELS_HINT)
        earlier = judged.setdefault((qid, docid), location)
        if earlier is not location:
            raise location.error(f"judged twice, first on line {earlier.line}", f"{qid} {docid}", "keep one of them")
        first_location.setdefault(qid, location)
        relevant.setdefault(qid, []).extend([docid] if int(relevance) > 0 else [])
    for qid, ids in relevant.items():
        yield first_location[qid], GoldItem(qid=qid, question="", answerable=True, citations=tuple(ids) or None)


def as_paths(path: str | Path | Sequence[str | Path]) -> tuple[str | Path, ...]:
    """One path or several, as a tuple."""
    return (path,) if isinstance(path, (str, Path)) else tuple(path)


def set_name(paths: Sequence[str | Path]) -> str:
    """The default name of a set: its first file, or the directory of the seed 004 files."""
    first = Path(paths[0])
    if str(first) == STDIN:
        return "stdin"
    bare = first.name.removesuffix(".gz")
    if bare in _NAMES:
        return first.resolve().parent.name
    return first.resolve().name if first.is_dir() else Path(bare).stem


def read_items(paths: Sequence[str | Path], reader: RowReader) -> tuple[GoldItem, ...]:
    """Read the items of all files, in their order."""
    if not paths:
        raise GoldError("no gold file given", hint=SHAPES)
    first_location: dict[str, JsonLocation] = {}
    items: list[GoldItem] = []
    for source in _group_files(paths):
        before = len(items)
        questions: dict[str, str] | None = None
        for location, item in _read_source(source, reader):
            earlier = first_location.setdefault(item.qid, location)
            if earlier is not location:
                where = (
                    f"on line {earlier.line}" if earlier.path == location.path else f"in {earlier.path}:{earlier.line}"
                )
                hint = "qids are permanent: give one question a new one"
                raise location.error(f"qid appears twice, first {where}", item.qid, hint)
            if not item.question:  # judgements alone
                questions = _questions_beside(location.path) if questions is None else questions
                item = replace(item, question=questions.get(item.qid, ""))  # noqa: PLW2901
            items.append(item)
        if len(items) == before:
            file = _file_location(source.queries if isinstance(source, _BenchmarkFiles) else source)
            raise file.error("holds no item", hint=SHAPES)
    return tuple(items)


_QUERIES: Final = ("queries.jsonl", "queries.jsonl.gz")


def _questions_beside(path: str) -> dict[str, str]:
    """The questions by id that BEIR lays beside its judgements: in the same folder, or in the one around it."""
    folder = Path(path).absolute().parent
    beside = (each / name for each in (folder, folder.parent) for name in _QUERIES)
    found = next((file for file in beside if path != STDIN_NAME and file.is_file()), None)
    if found is None:
        return {}
    rows = _JsonText.lines(str(found), _as_text(_read_bytes(found), str(found)))
    queries = [row for _, row in rows if isinstance(row, dict) and isinstance(row.get("text"), str)]
    return {str(row["_id"]): row["text"] for row in queries if "_id" in row}


def _read_source(source: str | Path | _BenchmarkFiles, reader: RowReader) -> Iterator[tuple[JsonLocation, GoldItem]]:
    if isinstance(source, _BenchmarkFiles):
        return _read_benchmark(source)
    path, kind = _file_location(source).path, table_format(source)
    if kind in ("parquet", "xlsx"):
        return reader.table(binary_table(path, kind, reader.options), path)

    def refuse(line: int, reason: str, detail: str, _lost: int) -> NoReturn:
        raise JsonLocation(path, line).error(f"{reason}: {detail}", hint="fix the row: all rows are accepted, or none")

    raw = _read_bytes(source)
    first = raw.lstrip().partition(b"\n")[0]
    is_qrels = len(columns := first.split()) == _COLUMNS and _INTEGER.fullmatch(columns[-1].decode("utf-8", "replace"))
    if (kind == "csv" and not is_qrels) or is_header(first, reader.options):
        return reader.table(csv_table(io.BytesIO(raw), path, reader.options, refuse), path)
    text = _as_text(raw, path)
    start = text.lstrip()
    if not start.startswith(("[", "{")) and len(columns) == _COLUMNS:
        return _read_qrels(path, text)
    if start.startswith("{"):
        with suppress(ValueError, RecursionError):  # lines, or broken: the strict reader says where
            entries = rows_of(json.loads(text), gold=True)
            if entries is not None:
                return reader.objects((JsonLocation(path, number), row) for number, row in enumerate(entries, 1))
    rows = _JsonText(path, text).array() if start.startswith("[") else _JsonText.lines(path, text)
    return reader.objects(rows)


_OWN_MEMBERS: Final = frozenset(
    ("answerable", "gold_claim", "gold_claim_substr", "gold_citations", "gold_ids", "gold_contexts", "relevant")
)
"""Members that make an object a row of a gold file."""


def _as_gold_error(error: InputError, line: int | None = None) -> GoldError:
    message = str(error).removeprefix(f"{error.path}: ")
    return GoldError(message, path=error.path, line=error.line if line is None else line, hint=error.hint)


@dataclass
class RowReader:
    """Reads rows as gold items, and counts those that are left out.

    What a row means that names no answer, `empty_reference`, is explained at `ragmon.ingest.tables.gold_fields`.
    """

    match: Match = "exact"
    options: TableOptions = USUAL
    empty_reference: str | None = None
    skipped: int = 0

    def objects(self, rows: Iterable[tuple[JsonLocation, Any]]) -> Iterator[tuple[JsonLocation, GoldItem]]:
        """The items of JSON objects: rows of gold files, or rows with the usual names of other programs."""
        for location, raw, is_foreign in self._adapted(rows):
            if isinstance(raw, dict) and (self.options.columns or (is_foreign and has_reference(raw))):
                item = self._row(location, raw)
            elif isinstance(raw, dict) and is_trace(raw):
                mapping = "; if its answers are the right ones: ragmon gold from-table --map gold_claim=answer"
                raise location.error(TRACES_AS_GOLD, hint=TRACES_HINT + (mapping if "answer" in raw else ""))
            elif is_foreign and raw.keys().isdisjoint(("qid", "vars")) and not any(map(_is_misspelt, raw)):
                self._check(list(raw), raw, location.path, location.line)
                item = self._row(location, raw)
            else:
                item = _read_item(location, raw, self.match)
            if item is not None:
                yield location, item

    def table(self, table: TableRows, path: str) -> Iterator[tuple[JsonLocation, GoldItem]]:
        """The items of a table."""
        try:
            given = [(JsonLocation(path, number), row) for number, row in table.rows]
        except InputError as error:
            raise _as_gold_error(error) from None
        rows = [(location, row) for location, row, _ in self._adapted(given)]
        if rows or not given:
            first = rows[0][1] if rows else {}
            is_adapted = bool(given) and first is not given[0][1]
            self._check(list(first) if is_adapted else table.columns, first, path)
        for location, row in rows:
            item = self._row(location, row)
            if item is not None:
                yield location, item

    def _check(self, columns: Sequence[str], first: Mapping[str, Any], path: str, line: int | None = None) -> None:
        try:
            check_gold(columns, first, self.options, path)
        except InputError as error:
            raise _as_gold_error(error, line) from None

    def _adapted(self, rows: Iterable[tuple[JsonLocation, Any]]) -> Iterator[tuple[JsonLocation, Any, bool]]:
        """The rows, and whether they have other names than gold files.

        Those of data sets have the usual names, and the judgements of a question are one row, after all others.
        """
        judged: dict[str, tuple[JsonLocation, dict[str, Any]]] = {}
        seen: dict[tuple[str, str], JsonLocation] = {}
        for location, raw in rows:
            if not isinstance(raw, Mapping) or not _OWN_MEMBERS.isdisjoint(raw):
                yield location, raw, False
                continue
            try:
                found = judgement(raw, self.options)
                if found is None:
                    yield location, adapted(raw, self.options), True
                    continue
            except UnreadAssertionError as error:
                if self.empty_reference != "skip":
                    raise location.error(str(error), hint="--empty-reference skip leaves it out") from None
                self.skipped += 1
                continue
            except CellError as error:
                raise location.error(str(error), hint="fix the row, or map another column") from None
            earlier = seen.setdefault((found.key, found.document), location)
            if earlier is not location:
                what = f"{found.key} {found.document}"
                raise location.error(f"judged twice, first on line {earlier.line}", what, "keep one of them")
            _, item = judged.setdefault(found.key, (location, {**found.row, found.column: []}))
            item[found.column] += [found.document] if found.is_relevant else []
        for location, row in judged.values():
            yield location, row, True

    def _row(self, location: JsonLocation, row: Mapping[str, Any]) -> GoldItem | None:
        try:
            fields = gold_fields(row, self.options, self.empty_reference)
        except MissingReferenceError as error:
            hint = f"ragmon gold from-table {location.path} --empty-reference {', or '.join(EMPTY_REFERENCE)}"
            raise location.error(str(error), hint=hint) from None
        except (CellError, InputError) as error:
            hint = error.hint if isinstance(error, InputError) else "fix the row, or map another column"
            raise location.error(str(error), hint=hint) from None
        if fields is None:
            self.skipped += 1
            return None
        return _read_item(location, fields, self.match)


def as_line(item: GoldItem) -> dict[str, Any]:
    """An item as a line of a gold file holds it.

    >>> as_line(GoldItem("a", "Why?", answerable=False))
    {'qid': 'a', 'question': 'Why?', 'answerable': False}
    """
    optional = {
        "gold_claim": item.gold_claim,
        "gold_claim_substr": item.claim_substrings,
        "gold_citations": item.citations,
        "gold_contexts": item.contexts,
        "tags": item.tags,
        "paraphrases": item.paraphrases,
        "negatives": item.negatives,
        "constraints": item.constraints,
    }
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in optional.items() if value}
    return {"qid": item.qid, "question": item.question, "answerable": item.answerable, **given}


_ID: Final = {"type": ["string", "integer"], "pattern": r"\S"}
_TEXT: Final = {"type": "string", "pattern": r"\S"}
_TYPES: Final[Mapping[Callable[[Any], Any], Schema]] = {
    _id: _ID,
    _text: _TEXT,
    _string: {"type": "string"},
    _flag: {"type": "boolean"},
    _ids: {"type": "array", "items": _ID},
    _texts: {"type": "array", "items": _TEXT},
    _strings: {"type": "object", "additionalProperties": {"type": "string"}},
}
_NOTES: Final = {
    "qid": "A permanent id. A whole number is read as its digits.",
    "question": "The question. `q` and `query` are other names of it.",
    "q": "The same as `question`.",
    "query": "The same as `question`.",
    "answerable": "Whether the corpus holds the answer. May be left out where `relevant` or `gold_contexts` names it.",
    "gold_claim_substr": "Phrases; an answer that holds one of them is right.",
    "gold_claim": "A complete reference answer.",
    "gold_citations": "The ids of the documents that hold the answer. `gold_ids` and `relevant` are other names of it.",
    "gold_ids": "The same as `gold_citations`.",
    "relevant": "The same as `gold_citations`.",
    "gold_contexts": "The passages that hold the answer, where documents have no ids.",
    "anchor_section": "Read, not scored.",
    "tags": "Slices the question belongs to.",
    "paraphrases": "Other wordings of the question.",
    "negatives": "Ids that look relevant and are not.",
    "constraints": "Statements for other checks; kept, not scored.",
}
"""What each field holds. The hints of `GOLD_ROW` are for a value that is wrong."""


def gold_schema() -> Schema:
    """The JSON Schema of one gold item as an object."""
    own = {"anyOf": [{"required": [name]} for name in sorted(_OWN_MEMBERS)]}
    properties: dict[str, Schema] = {}
    for name, field in GOLD_ROW.items():
        schema = _TYPES[field.read] if name == "qid" else {"anyOf": [_TYPES[field.read], {"type": "null"}]}
        properties[name] = {"description": _NOTES[name], **schema}
    not_null = {"properties": {"answerable": {"type": "boolean"}}, "required": ["answerable"]}
    named = [
        {"properties": {name: {"type": "array", "minItems": 1}}, "required": [name]}
        for name in ("relevant", "gold_contexts")
    ]
    item = {
        "description": "A row in the names of gold files.",
        "type": "object",
        "properties": properties,
        "required": ["qid"],
        "anyOf": [not_null, *named],
    }
    return {
        "$schema": DRAFT,
        "$id": identifier("gold", 1),
        "title": "A gold item of ragmon",
        "description": (
            "One question whose answer is known: a line of a JSON Lines file, or an element of a JSON array. Rows with "
            "the names of Ragas or DeepEval, such as `user_input` and `reference`, are read too and are not described "
            "here. So are tables, TREC qrels and the three files of seed 004, which are not JSON rows."
        ),
        "type": "object",
        "if": own,
        "then": {"$ref": "#/$defs/GoldItem"},
        "else": {"not": {"propertyNames": {"enum": list(GOLD_ROW)}}},
        "$defs": {"GoldItem": item},
    }
