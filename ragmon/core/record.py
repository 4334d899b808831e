"""The trace contract, version 1: one request as one JSON object on one line, and the other lines of a journal.

Version 1 is frozen: fields may be added, none may change its meaning, and every later ragmon reads it. A journal holds
records and totals as a trace log does, and also labels, acknowledgements of alarms, tombstones and quarantine entries.

Numbers and document lists have limits, the same live and in a replay: one latency of 10^308 milliseconds would make the
sum of all latencies useless for ever. A value out of range becomes unknown, with a reason; the rest counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import msgspec

from ragmon.core.constants import (
    CONTRACT_VERSION,
    LABEL,
    OUT_OF_RANGE,
    PROBE,
    REST,
    STAGES,
    TOO_MANY_DOCUMENTS,
    UNKNOWN_WEIGHT,
)
from ragmon.core.errors import shorten

FIELDS: Final = ("correct", "answerable", "relevant_ids")
"""The fields of a label that judge an answer."""
LATEST: Final = 253_402_300_800.0
"""Event times lie before the year 10000, so that a time in milliseconds is rejected."""
EventTime = Annotated[float, msgspec.Meta(ge=0, lt=LATEST)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Answer(msgspec.Struct, gc=False, omit_defaults=True, repr_omit_defaults=True):
    """The answer of the pipeline.

    Attributes:
        claim: The text of the answer; None where there is none, or where text is not captured.
        citations: The documents it cites, in order; None where it gave no list, or one of them cannot be told.
        ranks: The numbers it cites, where `citations` are read from them as ranks from 1. Whether the pipeline counts
            from 0 shows in its totals alone.
        refused: The model says that it refuses, beside or in place of a text: a part of a message that is a refusal,
            `"refused": true` in JSON.
    """

    claim: str | None = None
    citations: list[str] | None = None
    ranks: list[Count] | None = None
    refused: bool | None = None


class Latency(msgspec.Struct, gc=False, omit_defaults=True):
    """The duration of the call and of its stages, in milliseconds; `ragmon.core.record` has the limits.

    Attributes:
        total: The whole call.
        retrieve: Retrieval.
        generate: Generation.
    """

    total: float | None = None
    retrieve: float | None = None
    generate: float | None = None


class Sampling(msgspec.Struct, gc=False, frozen=True):
    """The sampling decision by which this record was kept.

    Attributes:
        audit: The record won the uniform draw over all calls; alarms and release verdicts read only such records.
        stratum: The outcome it belongs to: `error`, `refusal`, `slow` or `rest`; `unknown_weight` where the rate of its
            draw is not known; `1 in 10` where a sampler in front kept it, of ten calls one; `sampled` where such a
            sampler does not say.
        p_audit: Probability of winning the audit draw.
        p: Probability of being kept at all.
    """

    audit: bool = True
    stratum: str = REST
    p_audit: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    p: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0

    @property
    def drawn(self) -> bool:
        """Whether the record won the uniform draw, at a rate that is known."""
        return self.audit and self.stratum != UNKNOWN_WEIGHT


class TextFacts(msgspec.Struct, gc=False, omit_defaults=True):
    """Facts about the text, decided where the text was, so that it need not leave the application.

    Attributes:
        gold_version: The gold set the claim facts were computed against.
        answered: There was a claim, refusal or not.
        refused: The claim was the refusal token.
        refusal_like: The refusal matcher called it a refusal.
        policy_refusal: The matcher says that a policy forbids the answer.
        contains_claim: A gold phrase occurs in the claim (C).
        contains_gold_claim: A phrase of the gold claim occurs in it.
        grounded: Groundedness reached its threshold.
        question_hash: HMAC-SHA256 of the normalised question under the configured key, 64 hex digits.
        claim_hash: The same of the claim, which is not normalised.
        context_hashes: The same of each context, in rank order.
        question_chars: Length of the question in characters.
        claim_chars: Length of the claim in characters.
        contexts: How many contexts there were.
        context_chars: Length of all contexts together, in characters.
        redacted: Which of `q`, `claim` and `contexts` were changed before export. The facts were decided before that
            and count in place of those texts.
        cut: Which of `claim` and `contexts` are longer than the part that was read: a fact about them that is unknown
            depends on the rest.
    """

    gold_version: str | None = None
    answered: bool | None = None
    refused: bool | None = None
    refusal_like: bool | None = None
    policy_refusal: bool | None = None
    contains_claim: bool | None = None
    contains_gold_claim: bool | None = None
    grounded: bool | None = None
    question_hash: str | None = None
    claim_hash: str | None = None
    context_hashes: list[str] | None = None
    question_chars: Count | None = None
    claim_chars: Count | None = None
    contexts: Count | None = None
    context_chars: Count | None = None
    redacted: list[str] | None = None
    cut: list[str] | None = None


class Record(msgspec.Struct, gc=False, omit_defaults=True, kw_only=True):
    """One request.

    Attributes:
        v: Contract version; None on lines of other programs.
        kind: None for a record; "totals" and "label" mark the other kinds of lines.
        trace_id: 32 hex digits.
        ts: Event time, the end of the call, in seconds since the epoch.
        pipeline: The pipeline that answered.
        source: live, probe, match, label; None is read as replay.
        qid: The id of the gold question, where it is known.
        matched: How the gold item was found, where that was done before the record arrived: `question`, `paraphrase`,
            `embedding`; None: no match was tried, or the item was known.
        q: The text of the question.
        retrieved_ids: Ids in rank order; None: not captured; []: retrieval found nothing.
        candidate_ids: Ids in rank order before reranking.
        scores: The scores of the retriever, in rank order.
        contexts: The retrieved texts, in rank order.
        answer_json: The answer.
        error: What went wrong, if the call ended in an error.
        latency_ms: Total and per stage, milliseconds.
        index_hash: The version of the index that was searched.
        build: The version of the application.
        session: The conversation the request belongs to.
        model: The model that answered.
        user: Who asked: personal data.
        sampling: The sampling decision; None: everything was kept.
        facts: Facts about text that was not exported.
        partial: Kept for its outcome: fields that are set inside the call are unknown, not false.
        ended: How the call ended where it neither returned nor failed: `abandoned` by its caller, `cancelled`,
            `interrupted` to wait for a person, `rejected` with a status below 500 for its client, `ignored` by
            `[errors] ignore`, or `cut` where it streamed more than the limit. Its answer is unknown.
        exported: The application's own tracer kept this trace.
        parent_span_id: The application's span that the call ran in, 16 hex digits.
        tags: Slices.
        verdicts: Recorded relevance of each retrieved document, in rank order.
        measures: Graded scores computed where the text was, by metric name.
        judge_versions: The version of each judge among them that has one, by metric name.
        instrumentation: The instrumentation whose spans the record was read from; None where ragmon captured the call,
            and in a file.
        why_unknown: Why fields of a record read from spans are unknown, by their names, as `q` and `answer_json`.
    """

    v: int | None = None
    kind: str | None = None
    trace_id: str | None = None
    ts: EventTime | None = None
    pipeline: str | None = None
    source: str | None = None
    qid: str | None = None
    q: str | None = None
    retrieved_ids: list[str] | None = None
    candidate_ids: list[str] | None = None
    scores: list[float] | None = None
    contexts: list[str] | None = None
    answer_json: Answer | None = None
    error: str | None = None
    latency_ms: Latency | None = None
    index_hash: str | None = None
    build: str | None = None
    session: str | None = None
    sampling: Sampling | None = None
    facts: TextFacts | None = None
    partial: bool = False
    ended: str | None = None
    exported: bool | None = None
    parent_span_id: str | None = None
    tags: dict[str, str] | None = None
    verdicts: list[bool] | None = None
    measures: dict[str, float] | None = None
    matched: str | None = None
    probe: bool | None = None  # older logs have it instead of a source
    model: str | None = None
    user: str | None = None
    judge_versions: dict[str, str] | None = None
    instrumentation: str | None = None
    why_unknown: dict[str, str] | None = None

    @property
    def cites(self) -> bool:
        """Whether the answer cites something."""
        answer = self.answer_json
        return answer is not None and bool(answer.citations or answer.ranks)


class Totals(msgspec.Struct, kw_only=True):
    """A producer's cumulative counts for one pipeline, source and stratum: all calls, sampled or not.

    Attributes:
        kind: "totals".
        v: Contract version.
        ts: When the counts were read, seconds since the epoch.
        instance: The producer; counts of one instance and start time only grow.
        started: When that producer started counting, seconds since the epoch.
        pipeline: The pipeline that answered.
        source: live or probe.
        stratum: The outcome of these calls, as in `Sampling`.
        calls: Calls in this stratum.
        kept: How many of them became records.
        dropped: Records lost in the producer, by reason.
        latency_ms: Log-bucket counts of the total latency (`ragmon.stats.histograms.bucket`).
    """

    kind: str = "totals"
    v: int = CONTRACT_VERSION
    ts: EventTime
    instance: str
    started: EventTime
    pipeline: str
    source: str
    stratum: str = REST
    calls: Count = 0
    kept: Count = 0
    dropped: dict[str, Count] = {}
    latency_ms: dict[int, Count] = {}


class Label(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="label"):
    """A person's judgement of an answer.

    Attributes:
        trace_id: The trace of the answer.
        rater: Who gave the label.
        correct: Right or wrong, or a share of it in [0, 1].
        answerable: The question has an answer.
        relevant_ids: The documents that hold it.
        ts: When it was given, seconds since the epoch.
        comment: Free text.
        answer: The record of the answer, where a journal had it when the label arrived.
        arrived: When another process took it, seconds since the epoch, where a chunk brought it.
    """

    trace_id: str
    rater: str
    correct: bool | float | None = None
    answerable: bool | None = None
    relevant_ids: list[str] | None = None
    ts: EventTime | None = None
    comment: str | None = None
    answer: Record | None = None
    arrived: float | None = None


Line = Record | Totals | Label
"""The lines of a trace log."""

_encoder: Final = msgspec.json.Encoder()


def encode(line: Entry) -> bytes:
    r"""One line of a trace log or of a journal, newline included.

    >>> encode(Record(v=1, qid="a", answer_json=Answer(claim="yes", citations=[])))
    b'{"v":1,"qid":"a","answer_json":{"claim":"yes","citations":[]}}\n'
    """
    return _encoder.encode(line) + b"\n"


RECORD_ENTRY: Final = "record"
LABEL_ENTRY: Final = "label"
SAMPLED_ENTRY: Final = "sampled"
FAILING_ENTRY: Final = "failing"
"""The kinds of entries that can be erased; the last two are those of a record that was counted elsewhere."""
SAMPLES: Final = (SAMPLED_ENTRY, FAILING_ENTRY)
"""Why a record that was counted elsewhere is in a journal: a draw, or that it fails a gate."""


class Ack(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="ack"):
    """An acknowledgement of an alarm.

    Attributes:
        pipeline, alert: The alarm.
        reason: What was found.
        by: Who acknowledged it; "" where nobody is named.
        at: When it was given, seconds since the epoch; None where that is when it arrived.
    """

    pipeline: str
    alert: str
    reason: str
    by: str = ""
    at: float | None = None


class Tombstone(msgspec.Struct, tag_field="kind", tag="forgotten"):
    """Replaces an entry that was erased on request.

    Attributes:
        was: The kind of the erased entry: `record`, `label`, or one of `SAMPLES`.
    """

    was: str = RECORD_ENTRY


class QuarantineEntry(msgspec.Struct, tag_field="kind", tag="quarantined"):
    """Replaces an entry in quarantine: the process crashed twice while it counted it.

    Attributes:
        was: The kind of that entry, `record`, `label` or another one.
    """

    was: str = RECORD_ENTRY


class ChunkEntry(msgspec.Struct, tag_field="kind", tag="chunk"):
    """A stretch of another log that was counted elsewhere (`ragmon.stream.chunk`), in the journal of the server.

    Attributes:
        body: The chunk, compressed, in base64.
        partition, offset: Where it stood in the topic of chunks, or before the first message that is still needed.
        log: The topic of chunks; "" where it is not known.
    """

    body: bytes
    partition: int
    offset: int
    log: str = ""


class ErasedTraces(msgspec.Struct, tag_field="kind", tag="erased"):
    """Traces that were erased on request since the entry before, for all that hold a part of them.

    Attributes:
        trace_ids: The traces, in lower case.
    """

    trace_ids: list[str]


Entry = Record | Totals | Label | Ack | Tombstone | QuarantineEntry | ChunkEntry | ErasedTraces

_record: Final = msgspec.json.Decoder(Record)
_totals: Final = msgspec.json.Decoder(Totals)
_other: Final = msgspec.json.Decoder(Label | Ack | Tombstone | QuarantineEntry | ChunkEntry | ErasedTraces)
_KIND: Final = b'{"kind":"'
_TOTALS: Final = b'{"kind":"totals"'
_SAMPLES: Final = tuple(b'{"kind":"%b"' % kind.encode() for kind in SAMPLES)
_FORGOTTEN: Final = b'{"kind":"forgotten"'
_QUARANTINED: Final = b'{"kind":"quarantined"'


def is_tombstone(line: bytes) -> bool:
    """Whether a line is a tombstone."""
    return line.startswith(_FORGOTTEN)


def is_quarantined(line: bytes) -> bool:
    """Whether a line is a quarantine entry."""
    return line.startswith(_QUARANTINED)


def quarantined(line: bytes) -> bytes:
    """The quarantine entry that replaces a line, without a newline.

    >>> quarantined(b'{"kind":"label","trace_id":"1"}'), quarantined(b'{"trace_id":"1"}')
    (b'{"kind":"quarantined","was":"label"}', b'{"kind":"quarantined","was":"record"}')
    """
    return _encoder.encode(QuarantineEntry(_kind(line).kind))


class _Kind(msgspec.Struct):
    kind: str = RECORD_ENTRY


_kind: Final = msgspec.json.Decoder(_Kind).decode


def decode_entry(line: bytes) -> Entry:
    """The entry of a line.

    Args:
        line: As written by `encode`; the kind, where there is one, is the first member.

    Raises:
        msgspec.DecodeError: The line is not an entry.

    >>> decode_entry(encode(Ack(pipeline="support", alert="precision", reason="rolled back"))).alert
    'precision'
    """
    if not line.startswith(_KIND) or line.startswith(_SAMPLES):
        return _record.decode(line)
    return _totals.decode(line) if line.startswith(_TOTALS) else _other.decode(line)


MAX_ID_CHARS: Final = 1024
"""Characters of a trace id, a rater or a document id."""
LONGEST_COMMENT: Final = 10_000
"""Characters of a comment."""
MAX_IDS: Final = 1000
"""Ids a label may hold: its trace, its rater and its documents."""
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_DECIMAL: Final = re.compile(r"[1-9]\d{19,38}", re.ASCII)
_TRACE_IDS: Final = 1 << 128
_FIELD_LIST: Final = f"{', '.join(FIELDS[:-1])} or {FIELDS[-1]}"


def parse_label(data: Any) -> Label:
    """Parse and check a label.

    Args:
        data: A decoded JSON object: `trace_id`, `rater`, and at least one of `correct`, `answerable` and
            `relevant_ids`.

    Raises:
        ValueError: It is not a label; the message names the problem.

    >>> parse_label({"trace_id": "5A1C", "rater": "ada", "correct": True}).trace_id
    '5a1c'
    """
    # Only a journal or a chunk may add the answer: an answer sent with the label is not trusted.
    own = {"kind": "label", "answer": None, "arrived": None}
    label = msgspec.convert({**data, **own} if isinstance(data, dict) else data, Label)
    label.trace_id = label.trace_id.lower()
    correct = label.correct
    if not label.trace_id or not label.rater:
        raise ValueError("a label names its trace_id and its rater")
    if isinstance(correct, float | int) and not 0 <= correct <= 1:
        raise ValueError(f"correct is true, false or a share from 0 to 1, not {correct}")
    names = (label.trace_id, label.rater, *(label.relevant_ids or ()))
    if max(map(len, names)) > MAX_ID_CHARS or len(names) > MAX_IDS:
        raise ValueError(f"a label names at most {MAX_IDS} documents, in at most {MAX_ID_CHARS} characters each")
    if len(label.comment or "") > LONGEST_COMMENT:
        raise ValueError(f"a comment has at most {LONGEST_COMMENT} characters")
    if correct is None and label.answerable is None and label.relevant_ids is None:
        raise ValueError(f"a label says something: {_FIELD_LIST}")
    try:
        "".join((*names, label.comment or "")).encode()
    except UnicodeEncodeError:
        raise ValueError("a label's texts hold half of a character: they are no Unicode") from None
    return label


def trace_key(trace_id: str) -> str:
    """The form in which trace ids are compared: 32 hex digits, where the id is those in another usual form.

    >>> trace_key("{5A1C0000-0000-0000-0000-00000000000B}"), trace_key("0x5a1c000000000000000000000000000b")
    ('5a1c000000000000000000000000000b', '5a1c000000000000000000000000000b')
    >>> trace_key("119768115170133450894512352302214742027"), trace_key("Run 7")
    ('5a1a7ffbfee08de5e0024979a6d5000b', 'run 7')
    """
    text = trace_id.strip().lower()
    bare = text.removeprefix("urn:uuid:").strip("{}").removeprefix("0x").replace("-", "")
    if _TRACE_ID.fullmatch(bare):
        return bare
    if _DECIMAL.fullmatch(text) and int(text) < _TRACE_IDS:
        return f"{int(text):032x}"
    return trace_id.lower()


def check_trace_id(label: Label) -> Label:
    """Return a label if its trace id is 32 hex digits in a usual form, as a server's are; in a log it may be any text.

    Raises:
        ValueError: It is not.
    """
    label.trace_id = trace_key(label.trace_id)
    if not _TRACE_ID.fullmatch(label.trace_id):
        raise ValueError(f"trace_id is 32 hex digits, not {shorten(label.trace_id)}")
    return label


def is_redacted(record: Record, text: str) -> bool:
    """Whether redaction changed a text of a record (`q`, `claim`, `contexts`), so that facts count in its place."""
    facts = record.facts
    return facts is not None and facts.redacted is not None and text in facts.redacted


def accepts_labels(record: Record) -> bool:
    """Whether labels may join a record: a probe is judged by gold, and a labelled record gets no further labels."""
    return record.source not in (PROBE, LABEL)


LONGEST_MS: Final = 86_400_000.0
"""The longest latency in milliseconds: a day. A longer one comes from a wrong clock or a wrong unit."""
LARGEST: Final = 10**13
"""The largest count a producer may report: a thousand calls a second for three hundred years."""
DOCUMENTS: Final = 1_000
"""Documents of a record that are ranked; the same as `ragmon.metrics.facts.DEPTH`."""
MAX_DOCUMENTS_KEPT: Final = DOCUMENTS + 1
"""Documents kept: one more than are ranked, so that a cut list is not taken for a complete list."""
SHORT: Final = 2_000
"""A JSON line of at most so many bytes cannot hold more documents: each list member takes at least two bytes."""
_PARALLEL_FIELDS: Final = ("scores", "contexts", "verdicts")  # to `retrieved_ids`: a value a document
_NO_REASONS: Final[Mapping[str, str]] = MappingProxyType({})


def in_range(milliseconds: float) -> bool:
    """Whether a latency in milliseconds is possible: not negative, finite and at most a day.

    >>> in_range(0.0), in_range(-1.0), in_range(1e308), in_range(float("nan"))
    (True, False, False, False)
    """
    return 0.0 <= milliseconds <= LONGEST_MS


def latencies_in_range(latency: Latency) -> bool:
    """Whether all known latencies of a request are in range."""
    return (
        0.0 <= (latency.total or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.retrieve or 0.0) <= LONGEST_MS
        and 0.0 <= (latency.generate or 0.0) <= LONGEST_MS
    )


def bounded(record: Record) -> tuple[Record, Mapping[str, str]]:
    """A record without values beyond the limits, and the reasons by field.

    Args:
        record: The record as received; it is not changed.

    >>> found, unknown = bounded(Record(latency_ms=Latency(total=1e308, retrieve=5.0)))
    >>> found.latency_ms, unknown
    (Latency(total=None, retrieve=5.0, generate=None), {'latency_ms.total': 'out_of_range'})
    """
    latency = record.latency_ms
    lists = (record.retrieved_ids, record.contexts, record.scores, record.candidate_ids, record.verdicts)
    if (latency is None or latencies_in_range(latency)) and not any(
        len(values) > MAX_DOCUMENTS_KEPT for values in lists if values
    ):
        return record, _NO_REASONS
    changes: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    if latency is not None and not latencies_in_range(latency):
        latencies = {stage: getattr(latency, stage) for stage in STAGES}
        bad_stages = [stage for stage, ms in latencies.items() if ms is not None and not in_range(ms)]
        changes["latency_ms"] = msgspec.structs.replace(latency, **dict.fromkeys(bad_stages))
        unknown |= {f"latency_ms.{stage}": OUT_OF_RANGE for stage in bad_stages}
    for id_field, parallel_fields in (("retrieved_ids", _PARALLEL_FIELDS), ("candidate_ids", ())):
        own = {name: values for name in (id_field, *parallel_fields) if (values := getattr(record, name)) is not None}
        if all(len(values) <= MAX_DOCUMENTS_KEPT for values in own.values()):
            continue
        unknown[id_field] = TOO_MANY_DOCUMENTS
        ids: Sequence[str] = own.get(id_field, ())
        positions: dict[str, int] = {}  # a repeated document keeps its first position only
        for position, document_id in enumerate(ids):
            if len(positions) >= MAX_DOCUMENTS_KEPT:
                break
            positions.setdefault(document_id, position)
        for name, values in own.items():
            is_parallel = len(values) == len(ids)
            changes[name] = [values[i] for i in positions.values()] if is_parallel else values[:MAX_DOCUMENTS_KEPT]
    return msgspec.structs.replace(record, **changes), unknown
