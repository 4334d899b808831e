"""One line of a trace log becomes a record, a totals line or a label, or is rejected with a reason.

Other programs' formats are read too: seeds 000 and 002, the WFGY live record, older logs. Their values are converted to
the types of the trace contract. A value that fits no type is unknown, never guessed, and the record stays; a line is
rejected where nothing in it can be judged. NaN and Infinity, which Python writes, are no values: absent.

The JSON Schema of a line says which values the reader reads, which is more than the trace contract asks for: it never
rejects a line whose values are all read.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol, TypeVar

import msgspec

from ragmon.core import answers, constants
from ragmon.core.citations import with_marks
from ragmon.core.constants import CONTRACT_VERSION
from ragmon.core.documents import matched, read_document
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
    Count,
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
from ragmon.core.written import JSON
from ragmon.ingest.cells import cited_documents
from ragmon.ingest.tables import TAG, USUAL, TableOptions, as_document, gold_as_traces, is_gold, usual_fields, written
from ragmon.ingest.tables import as_ids as table_ids
from ragmon.ingest.values import ABSENT, POINT, formatted_time, milliseconds, times


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
    """Convert to an id: a string, or a whole number as its digits; pandas writes 12.0 for 12."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise wrong_type(name, "a string or an integer", value)


def as_ids(value: Any, name: str) -> list[str] | None:
    """Convert to an ordered list of ids; an entry is an id, an object with an `id`, or null, which is left out."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "a list of ids", value)
    ids: list[Any] = value
    kinds = set(map(type, ids))
    if dict in kinds:
        ids = [entry.get("id", {}) if isinstance(entry, dict) else entry for entry in ids]
        if {} in ids:
            raise Rejected(constants.INVALID_SCHEMA, f"an entry of {name} has no id: {shorten(value)}")
        kinds = set(map(type, ids))
    if kinds <= _STR_ONLY:
        return ids
    known = [entry for entry in ids if entry is not None]
    if not known:
        raise Rejected(constants.INVALID_SCHEMA, f"no entry of {name} has an id: {shorten(value)}")
    return [str(as_id(entry, f"an entry of {name}")) for entry in known]


def as_number(value: Any, name: str) -> float | None:
    """Convert to a finite number; of a text that allows two readings, only Python's own is taken."""
    if value is None or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, str) and value.strip().lower() in ABSENT:
        return None
    readings = milliseconds(value)
    if len(readings) == 1:
        return next(iter(readings.values()))
    if POINT in readings and "," not in str(value):
        return readings[POINT]
    if readings:
        raise wrong_type(name, "a number whose decimal mark is known", value)
    raise wrong_type(name, "a number", value)


def as_time(value: Any, name: str, time_format: str | None = None) -> float | None:
    """Convert to seconds since the epoch; a time without an offset is UTC, on every machine."""
    if isinstance(value, float) and 0 <= value < LATEST:
        return value
    is_text = isinstance(value, str)
    if value is None or (is_text and value.strip().lower() in ABSENT):
        return None
    readings = formatted_time(value, time_format) if is_text and time_format else times(value, serials=is_text)
    if len(readings) == 1:
        return next(iter(readings.values()))
    if readings:
        raise wrong_type(name, f"a time of one meaning, where it may be {' or '.join(readings)}", value)
    expected = f"a time as --time-format {time_format!r}" if is_text and time_format else "a time since 1970"
    raise wrong_type(name, expected, value)


def as_flag(value: Any, name: str) -> bool | None:
    """Check for a JSON boolean; the string "false" is not a boolean."""
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(name, "true or false", value)


def as_object(value: Any) -> dict[str, Any]:
    """The members of an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_verdicts(value: Any, name: str) -> list[bool] | None:
    """Convert the relevance of each document: booleans, yes and no, or objects with a `verdict`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "a list", value)
    relevance = []
    for entry in value:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        relevant = _BOOLEANS.get(str(verdict).strip().lower())
        if relevant is None:
            raise wrong_type("a verdict", "yes or no", verdict)
        relevance.append(relevant)
    return relevance


def as_source(value: Any, name: str) -> str | None:
    """Check for a source."""
    if value is not None and value not in constants.SOURCES:
        raise wrong_type(name, f"one of {', '.join(constants.SOURCES)}", value)
    return as_text(value, name)


def as_object_or_none(value: Any, name: str) -> dict[str, Any] | None:
    """Check for an object."""
    if value is None or isinstance(value, dict):
        return value
    raise wrong_type(name, "an object", value)


def as_type(value: Any, name: str, kind: Any) -> Any:
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
    "matched judge_versions instrumentation why_unknown"
)
AnyShape: Final[Any] = msgspec.defstruct("AnyShape", [(name, Any, None) for name in _MEMBERS.split()], gc=False)
"""Every member of every known format, with any value; unknown ones are ignored."""


class Unknown(Protocol):
    """Called with a field of a record that is unknown or cut, the reason, and what was found where it is unreadable."""

    def __call__(self, field: str, reason: str, found: str = "", /) -> None:
        """Take it."""


def _ignore(field: str, reason: str, found: str = "", /) -> None:
    pass


_Value = TypeVar("_Value")


class _Read(Protocol):
    """Converts the value of a field; one that cannot be read is reported, and None."""

    def __call__(self, convert: Callable[[Any, str], _Value | None], value: Any, name: str, /) -> _Value | None: ...


def adapt(value: Any, unknown: Unknown = _ignore, options: TableOptions = USUAL) -> Record:
    """Convert a line of any known format to a record; a field that cannot be read is unknown."""

    def read(convert: Callable[[Any, str], _Value | None], found: Any, name: str, /) -> _Value | None:
        if found is None:  # as most fields are
            return None
        try:
            return convert(found, name)
        except Rejected as error:
            unknown(name.partition(".")[0], constants.UNREADABLE, str(error))
            return None

    has_version = value.v is not None and not isinstance(value.v, str)  # other programs write their own, as text
    if has_version and (isinstance(value.v, bool) or value.v != CONTRACT_VERSION):
        raise wrong_type("v", f"{CONTRACT_VERSION}, the version of the trace contract this ragmon reads", value.v)
    retrieval, context = as_object(value.retrieval), as_object(value.context)
    reply = _reply(value, options.reasoning)
    given = value.chunks if value.chunks is not None else retrieval.get("topk")
    if reply is not None and reply.documents and given is value.retrieved_ids is value.contexts is None:
        if all(isinstance(entry, str) and " " in entry for entry in reply.documents):
            value.contexts = reply.documents
        else:
            given = table_ids(reply.documents, None, options.id_from)
    documents = _completed(value.retrieved_ids if given is None else given, value.candidate_ids)
    ids = documents if given is None or value.retrieved_ids is None else value.retrieved_ids
    question = value.q if value.q is not None else value.question
    retrieved_ids = read(as_ids, ids, "retrieved_ids")

    def cited(citations: Any) -> list[str] | None:
        if citations is None:
            return None

        def unread(why: str) -> None:
            unknown("citations", constants.UNREADABLE, why)

        documents = [entry for entry in ids if isinstance(entry, dict)] if isinstance(ids, list) else []
        titles = ((entry.get("id"), entry.get("title")) for entry in documents)
        return cited_documents(citations, retrieved_ids, options.id_from, titles, unread)

    answer, facts = _answer(value, reply, cited, read)
    # A list of ranks, or a text, which may cite as the answers of decorated calls and of spans do.
    is_text = isinstance(value.answer, str) or _is_reply(value.answer)
    if (is_text and value.citations is None) or (answer is not None and answer.citations):
        answer = with_marks(answer, retrieved_ids)
    error = "not ok" if value.ok is False else None
    if value.error:
        error = value.error if isinstance(value.error, str) else shorten(value.error)
    given = zip(_ALONE, _alone_of(value), strict=True)
    alone = {name: read(convert, found, name) for (name, convert), found in given if found is not None}
    if value.sampling is not None:
        alone["sampling"] = read(_SAMPLING, value.sampling, "sampling") or Sampling(stratum=constants.UNKNOWN_WEIGHT)
    if value.facts is not None:  # which may be of texts that were changed, so the texts say nothing
        facts = read(_FACTS, value.facts, "facts") or TextFacts(redacted=["claim", "contexts"])
    probe = read(as_flag, value.probe, "probe")
    source = read(as_source, value.source, "source")
    if value.source is None and probe is not None:
        source = constants.PROBE if probe else constants.LIVE
    record = Record(
        **alone,
        v=CONTRACT_VERSION if has_version else None,
        ts=read(partial(as_time, time_format=options.time_format) if options.time_format else as_time, value.ts, "ts"),
        source=source,
        qid=read(as_id, value.qid, "qid") if value.qid is not None else read(as_id, value.q_id, "q_id"),
        q=question if isinstance(question, str) else read(as_text, question, "question"),
        retrieved_ids=retrieved_ids,
        scores=read(_SCORES, _or_default(value.scores, _member_of_each(documents, "score")), "scores"),
        contexts=read(_TEXTS, _or_default(value.contexts, _member_of_each(documents, "text")), "contexts"),
        answer_json=answer,
        error=error,
        latency_ms=_latency(value, read),
        index_hash=read(as_text, _or_default(value.index_hash, retrieval.get("index_hash")), "index_hash"),
        build=read(as_text, _or_default(value.build, context.get("build")), "build"),
        model=_name(value.model),
        user=_name(value.user),
        facts=facts,
        partial=read(as_flag, value.partial, "partial") or False,
        tags=_tags(value.tags, context, read),
        measures=_measures(value.measures, read),
    )
    if record.v is None:
        record.pipeline = record.pipeline or options.pipeline
        values = (record.qid, record.q, record.retrieved_ids, record.contexts, record.answer_json, record.error)
        if all(field is None for field in (*values, record.verdicts)):
            raise Rejected(constants.INVALID_SCHEMA, NOTHING_TO_JUDGE)
    return record


NOTHING_TO_JUDGE: Final = "it has no question, no document, no answer and no error"


def _name(value: Any) -> str | None:
    """The name of a model or a user; other programs write objects and numbers there."""
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else None


def _is_reply(answer: Any) -> bool:
    """Whether an answer is a message, or the parts of its content, as the API of a model gives them."""
    return isinstance(answer, list) or (isinstance(answer, dict) and "claim" not in answer)


def _reply(line: Any, reasoning: Sequence[str]) -> answers.Reply | None:
    """What the text or the object of an answer says; None where it is no answer."""
    given = line.answer if line.answer_json is None else line.answer_json
    claim = given.get("claim") if isinstance(given, dict) else None
    given = given if claim is None else claim
    return answers.parse(given, reasoning) if isinstance(given, str) else answers.read(given, reasoning)


def _answer(
    line: Any, reply: answers.Reply | None, cited: Callable[[Any], list[str] | None], read: _Read
) -> tuple[Answer | None, TextFacts | None]:
    """The answer; one that cannot be read was given, and whether it refused is not known."""
    of_contract = line.answer_json is not None
    if of_contract or (isinstance(line.answer, dict) and (reply is None or "claim" in line.answer)):
        given = read(as_object_or_none, line.answer_json, "answer_json") if of_contract else line.answer
        if given is None:
            return Answer(), TextFacts()
        citations = cited(
            given.get("citations") if of_contract else _or_default(line.citations, given.get("citations"))
        )
        if of_contract or "claim" in given:
            claim, ranks = read(as_text, given.get("claim"), "claim"), read(_RANKS, given.get("ranks"), "ranks")
            is_unread = claim is None and given.get("claim") is not None
            if isinstance(given.get("claim"), str):
                claim = None if reply is None else reply.claim
                citations = cited(reply.citations) if citations is None and reply is not None else citations
            refused = (reply is not None and reply.refused) or given.get("refused") is True or None
            return Answer(claim, citations, ranks, refused), TextFacts() if is_unread else None
        # A WFGY live record has citations with offsets, and no text unless it was added. An answer with citations is
        # no refusal; without citations it may be either.
        return Answer(citations=citations), TextFacts(answered=True, refused=False) if citations else TextFacts()
    if reply is not None:
        citations = cited(line.citations)
        citations = cited(reply.citations) if citations is None else citations
        return Answer(reply.claim, citations, refused=reply.refused or None), None
    if line.answer is None or isinstance(line.answer, str):
        return None, None
    text = read(as_text, line.answer, "answer")
    return (Answer(), TextFacts()) if text is None else (Answer(text), None)


def _latency(line: Any, read: _Read) -> Latency | None:
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
        read(as_number, total, "latency_ms"),
        read(as_number, retrieve, "latency_ms.retrieve"),
        read(as_number, generate, "latency_ms.generate"),
    )
    if (
        not is_of_contract
        and total is None
        and latency.retrieve is not None
        and latency.generate is not None
        and latencies_in_range(latency)
    ):
        latency.total = latency.retrieve + latency.generate
    return latency


def _or_default(value: Any, default: Any) -> Any:
    return value if value is not None else default


def _completed(documents: Any, candidates: Any) -> Any:
    """Documents of a reranker with what it left out, where the candidates are objects."""
    if not isinstance(documents, list) or not isinstance(candidates, list) or dict not in set(map(type, candidates)):
        return documents
    read = [[read_document(entry, JSON, are_ids=True) for entry in entries] for entries in (documents, candidates)]
    return list(map(written, matched(*read)))


def _member_of_each(documents: Any, name: str) -> list[Any] | None:
    if not isinstance(documents, list) or not documents or isinstance(documents[0], str):
        return None
    members = [as_object(entry).get(name) for entry in documents]
    return None if None in members else members


def _tags(logged: Any, context: Mapping[str, Any], read: _Read) -> dict[str, str] | None:
    if logged is None and not context:
        return None
    tags = {}
    for name, value in (read(as_object_or_none, logged, "tags") or {}).items():
        # Other programs use numbers and booleans, too; a null tag is left out.
        text = str(value).lower() if isinstance(value, bool) else read(as_text, value, f"{TAG}{name}")
        if text is not None:
            tags[name] = text
    for name in ("client", "region"):
        if isinstance(context.get(name), str):
            tags.setdefault(name, context[name])
    return tags or None


def _measures(logged: Any, read: _Read) -> dict[str, float] | None:
    given = None if logged is None else read(as_object_or_none, logged, "measures")
    if given is None:
        return None
    found = {name: read(as_number, value, f"measures.{name}") for name, value in given.items()}
    return {name: value for name, value in found.items() if value is not None}


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
_DIGITS_OF_INT64: Final = 19
_SCORES: Final = partial(as_type, kind=list[float])
_TEXTS: Final = partial(as_type, kind=list[str])
_RANKS: Final = partial(as_type, kind=list[Count])
_SAMPLING: Final = partial(as_type, kind=Sampling)
_FACTS: Final = partial(as_type, kind=TextFacts)
_ALONE: Final[Sequence[tuple[str, Callable[[Any, str], Any]]]] = (
    *(
        (name, as_text)
        for name in ("trace_id", "pipeline", "session", "ended", "parent_span_id", "matched", "instrumentation")
    ),
    ("candidate_ids", as_ids),
    ("exported", as_flag),
    ("verdicts", as_verdicts),
    ("judge_versions", partial(as_type, kind=dict[str, str])),
    ("why_unknown", partial(as_type, kind=dict[str, str])),
)
"""Fields that have one name, in every format."""
_alone_of: Final = attrgetter(*(name for name, _ in _ALONE))
_DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_BYTE_OFFSET: Final = re.compile(r"\(byte (\d+)\)")
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


def decode(line: bytes, unknown: Unknown = _ignore, options: TableOptions = USUAL) -> Line:
    """Decode one line of any trace format ragmon reads.

    A line of the trace contract takes one pass in C. Other lines are decoded again by the rules of all formats, where
    `options` say which members hold which field. `unknown` is called for each field of the record that cannot be read
    or is out of range.
    """
    try:
        record = _decode_record(line)
    except msgspec.ValidationError:
        return _decode_any_format(line, unknown, options)
    except _DECODE_ERRORS as error:
        if line.startswith(BOM) and not line.startswith(BOM, len(BOM)):
            return decode(line[len(BOM) :], unknown, options)
        return decode(_repaired(line, error), unknown, options)
    if record.v is None:
        record.pipeline = record.pipeline or options.pipeline
        needed = (record.qid, record.q, record.retrieved_ids, record.answer_json)
        is_of_contract = None not in needed and record.probe is None and not options.columns
    else:
        is_of_contract = record.v == CONTRACT_VERSION
    if not is_of_contract or record.kind is not None or record.source not in _SOURCES:
        return _decode_any_format(line, unknown, options)
    answer = record.answer_json
    if answer is not None and (claim := answer.claim) is not None:
        # What ragmon captured is taken apart already.
        may_be_wrapped = record.v is None or claim[:1] in answers.OPENINGS or "</" in claim
        if may_be_wrapped and not answers.is_plain(claim):
            reply = answers.parse(claim, options.reasoning)
            if reply is None or reply.claim is not claim:
                return _decode_any_format(line, unknown, options)
    if record.v is None and record.cites:  # written by hand
        record.answer_json = with_marks(record.answer_json, record.retrieved_ids)
    if len(line) <= SHORT and (record.latency_ms is None or latencies_in_range(record.latency_ms)):
        return record
    return _bounded(record, unknown)


def _repaired(line: bytes, error: Exception) -> bytes:
    """A line that numbers alone keep from being read, without them."""
    rejection = _rejection(line, error)
    if rejection.reason == constants.NON_FINITE:
        return finite(line)
    try:
        raise rejection from None
    finally:
        del rejection  # else its traceback would hold this frame, and the frame the error


def finite(data: bytes) -> bytes:
    """JSON without the numbers that no float holds and that Python writes as NaN and Infinity: null stands for them.

    >>> finite(b'{"faithfulness": NaN, "scores": [1, 1e999]}')
    b'{"faithfulness":null,"scores":[1,null]}'
    """

    def number(text: str) -> float | None:
        value = float(text)
        return value if math.isfinite(value) else None

    def whole(text: str) -> float | None:
        return int(text) if len(text) < _DIGITS_OF_INT64 else number(text)

    try:
        value = json.loads(data, parse_constant=lambda _: None, parse_float=number, parse_int=whole)
        return msgspec.json.encode(value)
    except RecursionError:
        raise Rejected(constants.DEPTH, "it is nested too deeply") from None
    except UnicodeError:
        raise Rejected(constants.INVALID_UTF8, "half a surrogate pair is not a character") from None
    except ValueError as error:
        raise Rejected(constants.MALFORMED_JSON, str(error)) from None


def _bounded(record: Record, unknown: Unknown) -> Record:
    kept, reasons = bounded(record)
    for field, reason in reasons.items():
        unknown(field, reason)
    return kept


def _decode_any_format(line: bytes, unknown: Unknown, options: TableOptions) -> Line:
    try:
        fields = _decode_any_shape(line)
        if fields.kind is None:
            for name in ("retrieved_ids", "candidate_ids", "chunks"):
                entries = getattr(fields, name)
                if isinstance(entries, list) and dict in map(type, entries):
                    read = [as_document(entry, options.id_from) if isinstance(entry, dict) else {} for entry in entries]
                    entries = [
                        {**entry, **found} if found else entry for entry, found in zip(entries, read, strict=True)
                    ]
                    setattr(fields, name, entries)
            _add_usual_names(fields, line, options, unknown)
            return _bounded(adapt(fields, unknown, options), unknown)
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
        return decode(_repaired(line, error), unknown, options)
    except ValueError as error:
        raise Rejected(constants.INVALID_SCHEMA, str(error)) from None
    raise Rejected(
        constants.INVALID_SCHEMA, f"a line's kind is totals or label, or the line has no kind: {fields.kind!r:.80}"
    )


def _add_usual_names(fields: Any, line: bytes, options: TableOptions, unknown: Unknown) -> None:
    """Fill fields that a line has under the names of other programs, such as Ragas' `user_input`."""
    has_question = fields.question is not None or fields.q is not None
    has_answer = fields.answer is not None or fields.answer_json is not None
    has_documents = any(each is not None for each in (fields.retrieved_ids, fields.chunks, fields.retrieval))
    if not options.columns and has_question and has_answer and has_documents:
        return
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
    try:
        row = _decode_object(line)
    except _DECODE_ERRORS:  # in a member that no field is read from
        return
    missing = [name for name, is_there in has.items() if not is_there]
    try:
        found = usual_fields(row, options, missing, lambda name, what: unknown(name, constants.UNREADABLE, what))
    except InputError as error:
        raise Rejected(constants.INVALID_SCHEMA, f"{error}; {error.hint}") from None
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
            message = f"byte {invalid.start + 1} of the line is not UTF-8: {invalid.reason}"
        return Rejected(constants.INVALID_UTF8, message)
    offset = _BYTE_OFFSET.search(message)
    is_python_number = offset is not None and line.startswith((b"NaN", b"Infinity"), int(offset[1]))
    if OUT_OF_RANGE in message or is_python_number:
        return Rejected(constants.NON_FINITE, f"a number is not finite or has too many digits ({message})")
    if isinstance(error, msgspec.ValidationError):
        return Rejected(constants.INVALID_SCHEMA, message)
    if "surrogate" in message or _LONE_SURROGATE.search(line):
        return Rejected(constants.INVALID_UTF8, "half a surrogate pair is not a character")
    return Rejected(constants.MALFORMED_JSON, message)


_NULL: Final[Schema] = {"type": "null"}
_NUMBER: Final[Schema] = {"type": ["number", "string", "null"]}
_FLAG: Final[Schema] = {"type": ["boolean", "null"]}
_TEXT: Final[Schema] = {"type": ["string", "number", "null"]}
_ID: Final[Schema] = {"type": ["string", "integer", "null"]}
_DOCUMENT: Final[Schema] = {
    "type": ["string", "integer", "object", "null"],
    "properties": {"id": {"type": ["string", "integer", "null"]}},
}
_IDS: Final[Schema] = {"type": ["array", "null"], "items": _DOCUMENT}
_CITATIONS: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "object"}, _IDS, {"not": _NULL}]}
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
    "ts": {"type": ["number", "string", "null"], "minimum": 0, "exclusiveMaximum": LATEST * 1e9},
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
        "type": ["object", "number", "string", "null"],
        "properties": {"total": _NUMBER, "retrieve": _NUMBER, "generate": _NUMBER},
    },
    "index_hash": _TEXT,
    "build": _TEXT,
    "session": _TEXT,
    "sampling": _or_null("Sampling"),
    "facts": _or_null("TextFacts"),
    "partial": _FLAG,
    "ended": _TEXT,
    "exported": _FLAG,
    "parent_span_id": _TEXT,
    "tags": _map({"type": ["string", "number", "boolean", "null"]}),
    "verdicts": {"type": ["array", "null"], "items": _VERDICT},
    "measures": _map(_NUMBER),
    "matched": _TEXT,
    "probe": _FLAG,
    "model": {},
    "user": {},
    "judge_versions": _map({"type": "string"}),
    "instrumentation": _TEXT,
    "why_unknown": _map({"type": "string"}),
}
"""What the reader accepts in each member of a record; an empty schema: it reads a text and passes over other values."""

_MORE: Final = {
    "v": "The version of the contract: write 1. Absent, null or a text: a line of another program.",
    "ts": "Milliseconds and less are known by their size; ISO 8601, RFC 2822 and other texts of one meaning are read.",
    "qid": "A whole number is read as its digits.",
    "retrieved_ids": "An entry may be an object with an `id`; null is left out.",
    "candidate_ids": "An entry may be an object with an `id`; null is left out.",
    "latency_ms": "A number is the total, also as a text with a unit: `0.8 s`.",
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
    defs["Answer"]["properties"]["citations"] |= _CITATIONS
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
            "that are not listed are allowed; those that ragmon does not know are passed over. A value of another "
            "type is unknown, and the rest of the line is read."
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
