"""One line of a trace log becomes a record, a totals line or a label, or is rejected with a reason.

Other programs' formats are read too: seeds 000 and 002, the WFGY live record, older logs. Their values are converted to
the types of the trace contract; a value that fits no type is rejected, never guessed.

The JSON Schema of a line says what the reader accepts, which is more than the trace contract asks for: it never rejects
a line that is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ragmon.core import constants, shapes
from ragmon.core.citations import split_citations, with_marks
from ragmon.core.constants import CONTRACT_VERSION
from ragmon.core.errors import InputError, shorten
from ragmon.core.json_schema import DRAFT, Schema, attribute_notes, definitions, described, identifier
from ragmon.core.record import (
    FIELDS,
    LARGEST,
    LATEST,
    LONGEST_COMMENT,
    MAX_ID_CHARS,
    MAX_IDS,
    SHORT,
    Answer,
    Label,
    Latency,
    Line,
    Record,
    Sampling,
    TextFacts,
    Totals,
    bounded,
    latencies_in_range,
    parse_label,
)
from ragmon.core.text import look_up
from ragmon.ingest.cells import CellError
from ragmon.ingest.tables import USUAL, TableOptions, gold_as_traces, is_gold, usual_fields


class Rejected(Exception):  # noqa: N818 - an outcome that is counted, not a program error
    """A line, span or data point that cannot become a record, the reason, and the number of spans lost with it."""

    def __init__(self, reason: str, detail: str, lost_spans: int = 1) -> None:
        super().__init__(detail)
        self.reason = reason
        self.lost_spans = lost_spans


def wrong_type(name: str, expected: str, value: object) -> Rejected:
    """The rejection of a field whose value no format allows.

    >>> str(wrong_type("qid", "a string or an integer", True))
    'qid is a string or an integer, not True'
    """
    return Rejected(constants.INVALID_SCHEMA, f"{name} is {expected}, not {shorten(value)}")


OUT_OF_RANGE: Final = "out of range"
"""Part of msgspec's message about a number that does not fit in a float."""

_STR_ONLY: Final = frozenset({str})
_BOOLEANS: Final = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


def as_text(value: Any, name: str) -> str | None:
    """Convert to text; a number becomes text, because other programs do not quote text that looks like a number."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "text", value)
    return str(value)


def as_id(value: Any, name: str) -> str | None:
    """Convert to an id: a string, or an integer as a string."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise wrong_type(name, "a string or an integer", value)


def as_ids(value: Any, name: str) -> list[str] | None:
    """Convert to an ordered list of ids; an entry is an id, or an object with an `id`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "a list of ids", value)
    ids: list[Any] = value
    kinds = set(map(type, ids))
    if dict in kinds:
        ids = [entry.get("id") if isinstance(entry, dict) else entry for entry in ids]
        kinds = set(map(type, ids))
    if kinds <= _STR_ONLY:
        return ids
    if None in ids:
        raise Rejected(constants.INVALID_SCHEMA, f"an entry of {name} has no id: {shorten(value)}")
    return [str(as_id(entry, f"an entry of {name}")) for entry in ids]


def as_number(value: Any, name: str) -> float | None:
    """Convert to a finite number."""
    if value is None or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Rejected(constants.NON_FINITE, f"{name} is not finite or has too many digits")
    return number


def as_time(value: Any, name: str) -> float | None:
    """Convert to seconds since the epoch; ISO 8601 without an offset is UTC, on every machine."""
    seconds = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise wrong_type(name, "seconds since 1970 or ISO 8601", value) from None
        seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    number = as_number(seconds, name)
    if number is not None and not 0 <= number < LATEST:
        raise wrong_type(name, "seconds (not milliseconds) since 1970, before the year 10000", value)
    return number


def as_flag(value: Any, name: str) -> bool | None:
    """Check for a JSON boolean; the string "false" is not a boolean."""
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(name, "true or false", value)


def as_object(value: Any) -> dict[str, Any]:
    """The members of an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_verdicts(value: Any) -> list[bool] | None:
    """Convert the relevance of each document: booleans, yes and no, or objects with a `verdict`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type("verdicts", "a list", value)
    relevance = []
    for entry in value:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        relevant = _BOOLEANS.get(str(verdict).strip().lower())
        if relevant is None:
            raise wrong_type("a verdict", "yes or no", verdict)
        relevance.append(relevant)
    return relevance


def as_type(value: Any, kind: Any, name: str) -> Any:
    """Convert a part of a record by the rules of the trace contract."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = constants.NON_FINITE if OUT_OF_RANGE in str(error) else constants.INVALID_SCHEMA
        raise Rejected(reason, f"{name}: {error}") from None


_MEMBERS: Final = (
    "v kind trace_id ts pipeline source probe qid q_id q question retrieved_ids candidate_ids chunks retrieval "
    "scores contexts answer_json answer citations error ok latency_ms retrieval_ms generation_ms perf index_hash "
    "build context session model user sampling facts partial ended exported parent_span_id tags verdicts measures "
    "matched judge_versions"
)
AnyShape: Final[Any] = msgspec.defstruct("AnyShape", [(name, Any, None) for name in _MEMBERS.split()], gc=False)
"""Every member of every known format, with any value; unknown ones are ignored."""


def adapt(value: Any) -> Record:
    """Convert a line of any known format to a record."""
    retrieval, context = as_object(value.retrieval), as_object(value.context)
    documents = value.chunks if value.chunks is not None else retrieval.get("topk")
    ids = value.retrieved_ids if value.retrieved_ids is not None else documents
    question = value.q if value.q is not None else value.question
    answer, facts = _answer(value)
    retrieved_ids = as_ids(ids, "retrieved_ids")
    if isinstance(value.answer, str):  # a text, which may cite as the answers of decorated calls and of spans do
        answer = with_marks(answer, retrieved_ids)
    has_version = value.v is not None and not isinstance(value.v, str)  # other programs write their own, as text
    if has_version and (isinstance(value.v, bool) or value.v != CONTRACT_VERSION):
        raise wrong_type("v", f"{CONTRACT_VERSION}, the version of the trace contract this ragmon reads", value.v)
    error = "not ok" if value.ok is False else None
    if value.error:
        error = value.error if isinstance(value.error, str) else shorten(value.error)
    record = Record(
        v=CONTRACT_VERSION if has_version else None,
        trace_id=as_text(value.trace_id, "trace_id"),
        ts=as_time(value.ts, "ts"),
        pipeline=as_text(value.pipeline, "pipeline"),
        source=_source(value),
        qid=as_id(value.qid, "qid") if value.qid is not None else as_id(value.q_id, "q_id"),
        q=as_text(question, "the question"),
        retrieved_ids=retrieved_ids,
        candidate_ids=as_ids(value.candidate_ids, "candidate_ids"),
        scores=as_type(_or_default(value.scores, _member_of_each(documents, "score")), list[float], "scores"),
        contexts=as_type(_or_default(value.contexts, _member_of_each(documents, "text")), list[str], "contexts"),
        answer_json=answer,
        error=error,
        latency_ms=_latency(value),
        index_hash=as_text(_or_default(value.index_hash, retrieval.get("index_hash")), "index_hash"),
        build=as_text(_or_default(value.build, context.get("build")), "build"),
        session=as_text(value.session, "session"),
        model=_name(value.model),
        user=_name(value.user),
        sampling=as_type(value.sampling, Sampling, "sampling"),
        facts=_or_default(as_type(value.facts, TextFacts, "facts"), facts),
        partial=as_flag(value.partial, "partial") or False,
        tags=_tags(value.tags, context),
        verdicts=as_verdicts(value.verdicts),
        measures=as_type(value.measures, dict[str, float], "measures"),
        judge_versions=as_type(value.judge_versions, dict[str, str], "judge_versions"),
        ended=as_text(value.ended, "ended"),
        exported=as_flag(value.exported, "exported"),
        parent_span_id=as_text(value.parent_span_id, "parent_span_id"),
        matched=as_text(value.matched, "matched"),
    )
    if record.v is None:
        values = (record.qid, record.q, record.retrieved_ids, record.contexts, record.answer_json, record.error)
        if all(field is None for field in (*values, record.verdicts)):
            raise Rejected(constants.INVALID_SCHEMA, "it has no question, no document, no answer and no error")
    return record


def _name(value: Any) -> str | None:
    """The name of a model or a user; other programs write objects and numbers there."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _source(line: Any) -> str | None:
    probe = as_flag(line.probe, "probe")
    if line.source is None and probe is not None:
        return constants.PROBE if probe else constants.LIVE
    if line.source is not None and line.source not in constants.SOURCES:
        raise wrong_type("source", f"one of {', '.join(constants.SOURCES)}", line.source)
    return as_text(line.source, "source")


def _answer(line: Any) -> tuple[Answer | None, TextFacts | None]:
    if isinstance(line.answer_json, dict):
        claim = as_text(line.answer_json.get("claim"), "claim")
        return Answer(claim=claim, citations=_citations(line.answer_json.get("citations"))), None
    if line.answer_json is not None:
        raise wrong_type("answer_json", "an object", line.answer_json)
    if isinstance(line.answer, dict):
        # A WFGY live record has citations with offsets, and no text unless it was added.
        citations = _citations(line.answer.get("citations"))
        if "claim" in line.answer:
            return Answer(claim=as_text(line.answer["claim"], "claim"), citations=citations), None
        # An answer with citations is no refusal; without citations it may be either.
        facts = TextFacts(answered=True, refused=False) if citations else TextFacts()
        return Answer(citations=citations), facts
    text = as_text(line.answer, "answer")
    if text is None:
        return None, None
    claim, inline = split_citations(text)
    citations = _citations(line.citations)
    return Answer(claim=claim, citations=citations if citations is not None else inline), None


def _citations(citations: Any) -> list[str] | None:
    """A list of citations; None for anything but a list, a string too."""
    return as_ids(citations, "citations") if isinstance(citations, list) else None


def _latency(line: Any) -> Latency | None:
    # A format that times its stages alone has their sum as total. An object is that of the trace contract, where a
    # total that is not there is unknown: a live record without one has none either.
    perf = as_object(line.perf)
    total = line.latency_ms
    retrieve = _or_default(line.retrieval_ms, perf.get("t_retrieve_ms"))
    generate = _or_default(line.generation_ms, perf.get("t_reason_ms"))
    is_of_contract = isinstance(total, dict)
    if is_of_contract:
        retrieve, generate = _or_default(total.get("retrieve"), retrieve), _or_default(total.get("generate"), generate)
        total = total.get("total")
    if total is None and retrieve is None and generate is None:
        return Latency() if is_of_contract else None
    latency = Latency(
        as_number(total, "latency_ms"),
        as_number(retrieve, "the latency of retrieval"),
        as_number(generate, "the latency of generation"),
    )
    if (
        not is_of_contract
        and latency.total is None
        and latency.retrieve is not None
        and latency.generate is not None
        and latencies_in_range(latency)
    ):
        latency.total = latency.retrieve + latency.generate
    return latency


def _or_default(value: Any, default: Any) -> Any:
    return value if value is not None else default


def _member_of_each(documents: Any, name: str) -> list[Any] | None:
    if not isinstance(documents, list) or not documents:
        return None
    members = [as_object(entry).get(name) for entry in documents]
    return None if None in members else members


def _tags(logged: Any, context: Mapping[str, Any]) -> dict[str, str] | None:
    if not isinstance(logged, dict | None):
        raise wrong_type("tags", "an object", logged)
    tags = {}
    for name, value in (logged or {}).items():
        # Other programs use numbers and booleans, too; a null tag is left out.
        text = str(value).lower() if isinstance(value, bool) else as_text(value, f"the tag {name!r}")
        if text is not None:
            tags[name] = text
    for name in ("client", "region"):
        if isinstance(context.get(name), str):
            tags.setdefault(name, context[name])
    return tags or None


_decode_record = msgspec.json.Decoder(Record).decode
_decode_totals = msgspec.json.Decoder(Totals).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode
_decode_any_shape = msgspec.json.Decoder(AnyShape).decode

BOM: Final = b"\xef\xbb\xbf"
_SOURCES: Final = frozenset({*constants.SOURCES, None})
DEEPEST: Final = 400
"""Lists and objects in each other; a line that cannot be read and has more is too deep, whatever else is wrong."""
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_BRACKETS: Final = 1 << 20
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BYTE_OFFSET: Final = re.compile(r"\(byte (\d+)\)")
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


Unknown = Callable[[str, str], None]
"""Called with a field of a record that is unknown or cut, and the reason."""


def decode(line: bytes, unknown: Unknown | None = None, options: TableOptions = USUAL) -> Line:
    """Decode one line of any trace format ragmon reads.

    A line of the trace contract takes one pass in C. Other lines are decoded again by the rules of all formats, where
    `options` say which members hold which field. `unknown` is called for each field of the record that is out of range.
    """
    try:
        record = _decode_record(line)
    except msgspec.ValidationError:
        return _decode_any_format(line, unknown, options)
    except _DECODE_ERRORS as error:
        if line.startswith(BOM) and not line.startswith(BOM, len(BOM)):
            return decode(line[len(BOM) :], unknown, options)
        raise _rejection(line, error) from None
    if record.v is None:
        needed = (record.qid, record.q, record.retrieved_ids, record.answer_json)
        is_of_contract = None not in needed and record.probe is None and not options.columns
    else:
        is_of_contract = record.v == CONTRACT_VERSION
    if not is_of_contract or record.kind is not None or record.source not in _SOURCES:
        return _decode_any_format(line, unknown, options)
    if len(line) <= SHORT and (record.latency_ms is None or latencies_in_range(record.latency_ms)):
        return record
    return _bounded(record, unknown)


def _bounded(record: Record, unknown: Unknown | None) -> Record:
    kept, reasons = bounded(record)
    if unknown is not None:
        for field, reason in reasons.items():
            unknown(field, reason)
    return kept


def _decode_any_format(line: bytes, unknown: Unknown | None, options: TableOptions) -> Line:
    try:
        fields = _decode_any_shape(line)
        if fields.kind is None:
            # Give documents that are objects the id that `id_from` names, and remember their other ids for hints.
            for name in ("retrieved_ids", "chunks"):
                entries = getattr(fields, name)
                if not isinstance(entries, list) or not entries or not isinstance(entries[0], dict):
                    continue
                if options.id_from is not None:
                    # A document without an id there keeps its own.
                    ids = [look_up(entry, options.id_from) if isinstance(entry, dict) else None for entry in entries]
                    entries = [
                        entry if found is None else {**entry, "id": found}
                        for entry, found in zip(entries, ids, strict=True)
                    ]
                    setattr(fields, name, entries)
                for entry in map(as_object, entries):
                    if shapes.document_hints.room > 0 and isinstance(entry.get("id"), str):
                        shapes.document_hints.note(entry["id"], entry, entry.get("metadata"))
            _add_usual_names(fields, line, options)
            return _bounded(adapt(fields), unknown)
        if fields.kind == "totals":
            totals = _decode_totals(line)
            for key, n in (
                *(("calls", totals.calls), ("kept", totals.kept)),
                *totals.dropped.items(),
                *totals.latency_ms.items(),
            ):
                if n > LARGEST:  # it would spoil every sum it is added to
                    raise wrong_type(f"the count of {key}", f"at most {LARGEST}", n)
            return totals
        if fields.kind == constants.LABEL:
            return parse_label(_decode_object(line))
    except _DECODE_ERRORS as error:
        raise _rejection(line, error) from None
    except ValueError as error:
        raise Rejected(constants.INVALID_SCHEMA, str(error)) from None
    raise Rejected(constants.INVALID_SCHEMA, f"a line's kind is totals or label, or it has none: {fields.kind!r:.80}")


def _add_usual_names(fields: Any, line: bytes, options: TableOptions) -> None:
    """Fill fields that a line has under the names of other programs, such as Ragas' `user_input`."""
    alike = {
        "question": ("question", "q"),
        "answer": ("answer", "answer_json"),
        "retrieved_ids": ("retrieved_ids", "chunks", "retrieval"),
        "contexts": ("contexts", "chunks", "retrieval"),
        "citations": ("citations", "answer_json"),
        "qid": ("qid", "q_id"),
        "latency_ms": ("latency_ms", "perf"),
        "error": ("error", "ok"),
        "ts": ("ts",),
        "session": ("session",),
        "trace_id": ("trace_id",),
    }
    has = {name: any(getattr(fields, member) is not None for member in members) for name, members in alike.items()}
    has["citations"] = has["citations"] or isinstance(fields.answer, dict)
    if not options.columns and has["question"] and has["answer"] and has["retrieved_ids"]:
        return
    try:
        row = _decode_object(line)
    except _DECODE_ERRORS:  # in a member that no field is read from
        return
    try:
        found = usual_fields(row, options, [name for name, is_there in has.items() if not is_there])
    except (CellError, InputError) as error:
        hint = error.hint if isinstance(error, InputError) else ""
        raise Rejected(constants.INVALID_SCHEMA, f"{error}{hint and f'; {hint}'}") from None
    for name, value in found.items():
        setattr(fields, name, value)
        if name == "question":
            fields.q = None
        elif name == "answer":
            fields.answer_json = None


def refuse_gold(line: bytes, path: str) -> None:
    """Refuse a file whose first line is a gold item, which was given instead of traces."""
    try:
        row = _decode_object(line.removeprefix(BOM))
    except _DECODE_ERRORS:
        return
    if is_gold(row):
        raise gold_as_traces(path)


def _rejection(line: bytes, error: Exception) -> Rejected:
    message = str(error)
    depth = deepest = 0
    if line.count(b"[") + line.count(b"{") > DEEPEST:  # in each other, or beside each other
        for bracket in _STRING.sub(b"", line).translate(None, _NO_BRACKETS)[:_BRACKETS]:
            depth += 1 if bracket in b"[{" else -1
            deepest = max(deepest, depth)
    # How deep the decoder comes depends on who called it, and the reason must not.
    if isinstance(error, RecursionError) or deepest > DEEPEST:
        return Rejected(constants.DEPTH, "it is nested too deeply")
    if isinstance(error, UnicodeDecodeError) or "Invalid UTF-8" in message:  # by the version of msgspec
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as invalid:
            message = f"byte {invalid.start + 1} of the line is no UTF-8: {invalid.reason}"
        return Rejected(constants.INVALID_UTF8, message)
    offset = _BYTE_OFFSET.search(message)
    is_python_number = offset is not None and line.startswith((b"NaN", b"Infinity"), int(offset[1]))
    if OUT_OF_RANGE in message or is_python_number:
        return Rejected(constants.NON_FINITE, f"a number is not finite or has too many digits ({message})")
    if isinstance(error, msgspec.ValidationError):
        return Rejected(constants.INVALID_SCHEMA, message)
    if "surrogate" in message or _LONE_SURROGATE.search(line):
        return Rejected(constants.INVALID_UTF8, "half a surrogate pair is no character")
    return Rejected(constants.MALFORMED_JSON, message)


_NULL: Final[Schema] = {"type": "null"}
_NUMBER: Final[Schema] = {"type": ["number", "null"]}
_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
_TEXT: Final[Schema] = {"type": ["string", "number", "null"]}
_ID: Final[Schema] = {"type": ["string", "integer", "null"]}
_DOCUMENT: Final[Schema] = {
    "type": ["string", "integer", "object"],
    "properties": {"id": {"type": ["string", "integer"]}},
}
_IDS: Final[Schema] = {"type": ["array", "null"], "items": _DOCUMENT}
_VERDICT: Final[Schema] = {
    "anyOf": [
        {"type": "boolean"},
        {
            "type": ["string", "integer"],
            "pattern": r"^\s*([Yy][Ee][Ss]|[Nn][Oo]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[01])\s*$",
        },
        {"type": "object", "required": ["verdict"]},
    ]
}


def _map(values: Schema) -> Schema:
    return {"type": ["object", "null"], "additionalProperties": values}


def _list(items: str) -> Schema:
    return {"type": ["array", "null"], "items": {"type": items}}


def _or_null(name: str) -> Schema:
    return {"anyOf": [{"$ref": f"#/$defs/{name}"}, _NULL]}


_RECORD: Final[dict[str, Schema]] = {
    "v": {"anyOf": [{"const": CONTRACT_VERSION}, {"type": ["string", "null"]}]},
    "kind": _NULL,
    "trace_id": _TEXT,
    "ts": {"type": ["number", "string", "null"], "minimum": 0, "exclusiveMaximum": LATEST},
    "pipeline": _TEXT,
    "source": {"enum": [*constants.SOURCES, None]},
    "qid": _ID,
    "q": _TEXT,
    "retrieved_ids": _IDS,
    "candidate_ids": _IDS,
    "scores": _list("number"),
    "contexts": _list("string"),
    "answer_json": _or_null("Answer"),
    "error": {},
    "latency_ms": {
        "type": ["object", "number", "null"],
        "properties": {"total": _NUMBER, "retrieve": _NUMBER, "generate": _NUMBER},
    },
    "index_hash": _TEXT,
    "build": _TEXT,
    "session": _TEXT,
    "sampling": _or_null("Sampling"),
    "facts": _or_null("TextFacts"),
    "partial": _FLAG,
    "ended": {},
    "exported": _FLAG,
    "parent_span_id": {},
    "tags": _map({"type": ["string", "number", "boolean", "null"]}),
    "verdicts": {"type": ["array", "null"], "items": _VERDICT},
    "measures": _map({"type": "number"}),
    "matched": {},
    "probe": _FLAG,
    "model": {},
    "user": {},
    "judge_versions": _map({"type": "string"}),
}
"""What the reader accepts in each member of a record; an empty schema: it reads a text and passes over other values."""

_MORE: Final = {
    "v": "The version of the contract: write 1. Absent, null or a text: a line of another program.",
    "ts": "Seconds, not milliseconds; ISO 8601 is read too.",
    "qid": "A whole number is read as its digits.",
    "retrieved_ids": "An entry may be an object with an `id`.",
    "candidate_ids": "An entry may be an object with an `id`.",
    "latency_ms": "A number is the total.",
    "verdicts": "true and false, yes and no, or objects with a `verdict`.",
    "probe": "true: the source is `probe`. Older logs have it instead of a source.",
}


def trace_schema() -> Schema:
    """The JSON Schema of one line of a trace log."""
    defs = definitions(Answer, Sampling, TextFacts, Totals, Label, Record)
    notes = {name: note for name, note in attribute_notes(Record.__doc__ or "").items() if name != "v"}
    properties = {
        name: described(schema, " ".join(filter(None, (notes.get(name), _MORE.get(name)))))
        for name, schema in _RECORD.items()
    }
    defs["Record"]["properties"] = properties
    defs["Answer"]["properties"]["claim"] |= {"anyOf": [_TEXT]}
    citations = {"anyOf": [_IDS, {"not": {"type": "array"}}]}
    defs["Answer"]["properties"]["citations"] |= citations
    del defs["Latency"]
    totals = defs.pop("Totals")
    totals["properties"]["kind"] = {"const": "totals"}
    totals["required"].insert(0, "kind")
    count = {"type": "integer", "minimum": 0, "maximum": LARGEST}
    for name in ("calls", "kept"):
        totals["properties"][name] |= count
    for name in ("dropped", "latency_ms"):
        totals["properties"][name]["additionalProperties"] = count
    totals["properties"]["latency_ms"]["propertyNames"] = {"pattern": "^-?[0-9]+$"}
    # A label has the limits of `ragmon.core.record.parse_label`.
    label = defs.pop("Label")
    members: dict[str, Any] = label["properties"]
    text = {"type": "string", "minLength": 1, "maxLength": MAX_ID_CHARS}
    ids = {"type": "array", "items": {"type": "string", "maxLength": MAX_ID_CHARS}, "maxItems": MAX_IDS - 2}
    members["kind"] = {"const": "label"}
    members["trace_id"] |= text
    members["rater"] |= text
    members["correct"] |= {"anyOf": [{"type": "boolean"}, {"type": "number", "minimum": 0, "maximum": 1}, _NULL]}
    members["relevant_ids"] |= {"anyOf": [ids, _NULL]}
    members["comment"] |= {"anyOf": [{"type": "string", "maxLength": LONGEST_COMMENT}, _NULL]}
    for added in ("answer", "arrived"):  # what a journal or a chunk adds; in a line that is sent it is passed over
        del members[added]
    label["anyOf"] = [{"required": [name], "properties": {name: {"not": _NULL}}} for name in FIELDS]
    return {
        "$schema": DRAFT,
        "$id": identifier("trace", CONTRACT_VERSION),
        "title": "A line of a trace log of ragmon",
        "description": (
            "One JSON object on one line: a record of one request, a producer's totals, or a person's label. Members "
            "that are not listed are allowed; those that ragmon does not know are passed over."
        ),
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("Record", "Totals", "Label")],
        "$defs": {"Record": defs.pop("Record"), "Totals": totals, "Label": label} | defs,
    }


_EXPORT_START: Final = re.compile(rb'\s*\{\s*"resource(Spans|Metrics|Logs)"')


def is_export(line: bytes, of: str | None = None) -> bool:
    """Whether a line looks like an OTLP export request: of `Spans`, `Metrics` or `Logs`, where that is asked.

    >>> is_export(b'{"resourceSpans":[]}'), is_export(b'{"qid":"a"}')
    (True, False)
    """
    start = _EXPORT_START.match(line)
    return start is not None and of in (None, start[1].decode())
