"""What is said of a gap of capture: one sentence, and the one setting that mends it. All such texts are here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ragmon.core import constants, semconv
from ragmon.core.errors import printable

NOT_DECORATED: Final = "spans"
"""The origin of records that come from spans of an instrumentation that is not known."""
FILE: Final = "file"
"""The origin of records that were read from a file."""


class Gap(NamedTuple):
    """A gap as its texts need it.

    Attributes:
        field: The field, a key of the tables below.
        missing, of: Records that lack it, and those that could have it.
        origin: Where the records come from: "" for decorated calls, the name of an instrumentation, `spans` for an
            unknown one, `file`.
        ids: Retrieved ids that were compared with gold.
        examples: Some of them, ready to be shown.
        gold_examples: Some ids of gold.
        other_ids: The field of the documents whose values are gold's ids, and the share that is.
    """

    field: str
    missing: int
    of: int
    origin: str = ""
    ids: int = 0
    examples: tuple[str, ...] = ()
    gold_examples: tuple[str, ...] = ()
    other_ids: tuple[str, float] | None = None


BY_REASON: Final[Mapping[str, str]] = {
    constants.NO_IDS: "return the documents with their ids, or call ragmon.record(retrieved=...); [capture] id_from",
    constants.NO_CITATIONS: (
        "return a list of citations, call ragmon.record(citations=...), or have answers cite retrieved documents as [1]"
    ),
    constants.NO_TEXT: "[capture] content, or [capture] gold where no text may leave the application",
    constants.NO_ANSWER: "say where the answer is: @ragmon.trace(extract=...)",
    constants.NO_LATENCY: "record latency_ms.total",
    constants.GOLD_VERSION: "give application and server the same gold file",
    constants.BEYOND_DEPTH: "gate the metric at a rank, @10: of a longer list, 1,000 ranks are kept",
    constants.TEXT_CUT: "record shorter texts",
}
"""What makes requests assessable that are not, by the reason why they are not."""

_BY_REASON_IN_FILES: Final[Mapping[str, str]] = {
    constants.NO_IDS: "`retrieved_ids` in the file, or --map retrieved_ids=NAME",
    constants.NO_CITATIONS: "`citations` in the file, or --map citations=NAME, or marks such as [1] in the answer",
    constants.NO_TEXT: "`question`, `answer` and `contexts` in the file, as texts",
    constants.NO_ANSWER: "`answer` in the file, or --map answer=NAME",
    constants.NO_LATENCY: "`latency_ms` in the file, or --map latency_ms=NAME",
}
"""The same for records of a file that name no source: nobody decorates a file."""
_BY_REASON_IN_GOLD: Final[Mapping[str, str]] = {
    constants.NO_GOLD_CLAIM: "`gold_claim_substr` in gold: short phrases that a right answer contains",
    constants.NO_GOLD_CITATIONS: "`gold_citations` in gold: the ids of the documents that hold the answer",
}
"""What gold items lack that could be compared."""

_SENTENCES: Final[Mapping[str, str]] = {
    "question": "no question in {missing} of {of} records",
    "answer": "no answer in {missing} of {of} records",
    "ids": "no ids of retrieved documents in {missing} of {of} records",
    "contexts": "no texts of retrieved documents in {missing} of {of} records",
    "citations": "no list of citations in {missing} of {of} answers",
    "gold": "0 of {of} questions match a gold item",
    "session": "no session in {missing} of {of} records",
    "build": "no build in {missing} of {of} records",
    "latency": "no latency in {missing} of {of} records",
    "refusal": "{missing} of {of} answers sound like refusals and count as answers",
}

_SWITCHES: Final[Mapping[str, str]] = {
    semconv.GENAI: (
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY "
        "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
    ),
    semconv.OPENINFERENCE: "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and the others of that name",
    semconv.OPENLLMETRY: "TRACELOOP_TRACE_CONTENT=true, or unset it",
}
"""The switch of each family of instrumentations that puts questions and answers on spans."""
_ANY_SWITCH: Final = (
    "the content switch of the instrumentation: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY, "
    "TRACELOOP_TRACE_CONTENT=true, or OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS unset"
)

_DECORATED: Final[Mapping[str, str]] = {
    "question": '`@ragmon.trace(question="body.question")` says where the question is, or `ragmon.record(question=…)`',
    "answer": (
        '`@ragmon.trace(extract={"claim": "answer"})` says where the answer is, or `ragmon.record(claim=…)`; '
        'a property is read by a callable: `extract=lambda result: {"claim": result.text}`'
    ),
    "ids": (
        "`ragmon.record(retrieved=documents)` in a call under `@ragmon.trace`; "
        "`[capture] id_from` says where a document's id is"
    ),
    "contexts": "`ragmon.record(retrieved=documents)` in a call under `@ragmon.trace`, with documents that have a text",
    "citations": (
        '`"citations"` in the result, or `ragmon.record(citations=[…])`: the ids that the answer cites; '
        "or marks such as [1] in the answer"
    ),
    "session": "`ragmon.record(session=…)`: the conversation that the call belongs to",
    "build": "RAGMON_BUILD in the application's environment: the version that answers",
    "latency": "`latency_ms` of the record, which ragmon sets for every call it traces",
}
_OF_SPANS: Final[Mapping[str, str]] = {
    "ids": "an instrumented retriever inside the request; `[capture] id_from` says where a document's id is",
    "contexts": "an instrumented retriever inside the request, which records the texts of its documents",
    "citations": "marks such as [1] in the answer, or the span attribute `ragmon.answer.citations`",
    "session": "the span attribute `session.id` or `gen_ai.conversation.id`",
    "build": "the resource attribute `service.version`: OTEL_RESOURCE_ATTRIBUTES=service.version=…",
    "latency": "spans with a start and an end",
}
_OF_FILES: Final[Mapping[str, str]] = {
    "question": "`question` in the file, or --map question=NAME",
    "answer": "`answer` in the file, or --map answer=NAME",
    "ids": "`retrieved_ids` in the file, or --map retrieved_ids=NAME",
    "contexts": "`contexts` in the file, or --map contexts=NAME",
    "citations": "`citations` in the file, or --map citations=NAME, or marks such as [1]; an empty list cites nothing",
    "session": "`session` in the file, or --map session=NAME",
    "build": "`build` in the file, or --map build=NAME",
    "latency": "`latency_ms` in the file, or --map latency_ms=NAME",
}
_ANYWHERE: Final[Mapping[str, str]] = {
    "gold": "`[probe.NAME]` asks the gold questions; `paraphrases` of gold items, or `[gold.NAME] embed`, match others",
    "gold_ids": "`[capture] id_from` names the field of a document that holds the ids of gold",
    "refusal": "`[refusal] matcher_counts = true` counts refusals in plain words",
}


def sentence(gap: Gap) -> str:
    """A gap in one sentence.

    >>> sentence(Gap("question", 349, 349))
    'no question in 349 of 349 records'
    >>> sentence(Gap("gold_ids", 60, 60, "", 300, ("e1f72df8-…",), ("grey-heron#1",), ("metadata.chunk_id", 0.91)))
    'none of 300 retrieved ids occurs in gold; they look like `e1f72df8-…`, gold like `grey-heron#1`; \
`metadata.chunk_id` would match 91 %'
    """
    if gap.field != "gold_ids":
        return _SENTENCES[gap.field].format(missing=gap.missing, of=gap.of)
    parts = [f"none of {gap.ids} retrieved ids occurs in gold"]
    if gap.examples and gap.gold_examples:
        parts.append(f"they look like `{gap.examples[0]}`, gold like `{gap.gold_examples[0]}`")
    if gap.other_ids is not None:
        path, share = gap.other_ids
        parts.append(f"`{printable(path)}` would match {100 * share:.0f} %")
    return "; ".join(parts)


def remedy(gap: Gap) -> str:
    """The setting that mends a gap.

    >>> remedy(Gap("question", 349, 349))
    '`@ragmon.trace(question="body.question")` says where the question is, or `ragmon.record(question=…)`'
    >>> remedy(Gap("answer", 20, 20, "OpenLLMetry"))
    'TRACELOOP_TRACE_CONTENT=true, or unset it'
    """
    if gap.field == "gold_ids" and gap.other_ids is not None:
        return f'`[capture] id_from = "{printable(gap.other_ids[0])}"`'
    if gap.field in _ANYWHERE:
        return _ANYWHERE[gap.field]
    if not gap.origin:
        return _DECORATED[gap.field]
    if gap.origin == FILE:
        return _OF_FILES[gap.field]
    return _OF_SPANS.get(gap.field) or _SWITCHES.get(gap.origin, _ANY_SWITCH)


def remedy_of_reason(reason: str, source: str) -> str | None:
    """What makes requests assessable that are not for a reason; None where nothing would.

    Args:
        reason: The reason.
        source: The source of the requests.

    >>> remedy_of_reason("no_ids", "replay")
    '`retrieved_ids` in the file, or --map retrieved_ids=NAME'
    """
    in_files = _BY_REASON_IN_FILES if source == constants.REPLAY else {}
    return in_files.get(reason) or BY_REASON.get(reason) or _BY_REASON_IN_GOLD.get(reason)
