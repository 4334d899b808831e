"""What records have, what metrics need, and what mends a gap; and how much of the traffic matches gold.

A capture report says which fields the records of a pipeline have, from the counts of `ragmon.scoring.captured`: live,
of the newest minutes that hold enough records, so that it changes soon after a setting was mended; of a replay, of the
whole run. All sentences on gaps and their remedies are here.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

from ragmon.core import constants, semconv, shapes
from ragmon.core.constants import DOCTOR_PIPELINE, LIVE, MATCH, MATCH_METHODS, UNMATCHED
from ragmon.core.errors import Unassessed, printable, printable_line
from ragmon.core.gold_item import ANSWERABLE, BY_TEXT, TOTAL_UNKNOWN
from ragmon.core.policy import Gate, Outcome
from ragmon.core.record import Record
from ragmon.ingest.gold import Items
from ragmon.metrics import facts as bits
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import Facts
from ragmon.scoring import captured as lacks
from ragmon.scoring.captured import EXAMPLES, FIRST, AlikeIds, CapturedBucket, CapturedSeries, shortened
from ragmon.scoring.scorer import Scorer
from ragmon.scoring.snapshot import ALL, SeriesStats, Snapshot

QUESTION: Final = "question"
ANSWER: Final = "answer"
IDS: Final = "ids"
CONTEXTS: Final = "contexts"
CITATIONS: Final = "citations"
GOLD: Final = "gold"
GOLD_IDS: Final = "gold_ids"
SESSION: Final = "session"
BUILD: Final = "build"
LATENCY: Final = "latency"
_IN_RECORD: Final = {QUESTION: "q", ANSWER: "answer_json"}
FIELDS: Final = (QUESTION, ANSWER, IDS, CONTEXTS, CITATIONS, GOLD, GOLD_IDS, SESSION, BUILD, LATENCY)
"""What a report shows of records; `gold` is a match with a gold item, `gold_ids` that retrieved ids occur in gold."""

_READS: Final[Mapping[str, tuple[str, ...]]] = {
    "answered": (ANSWER,),
    "shipped": (ANSWER,),
    "refused": (ANSWER,),
    "refusal_like": (ANSWER,),
    "policy_refusal": (ANSWER,),
    "contains_claim": (ANSWER,),
    "contains_gold_claim": (ANSWER,),
    "cites_gold": (CITATIONS,),
    "citation_hit": (CITATIONS, IDS, GOLD_IDS),
    "cites_only_retrieved": (CITATIONS, IDS),
    "cites_retrieved": (CITATIONS, IDS),
    "compliant": (CITATIONS,),
    "empty": (IDS,),
    "within": (LATENCY,),
    "grounded": (ANSWER, CONTEXTS),
    "require_grounding": (ANSWER, CONTEXTS),
    **dict.fromkeys(("relevant", "first", "gains", "gold_in_first"), (IDS, GOLD_IDS)),
}
_KNOWN_METRICS: Final = 512
_UNKNOWN: Final = (
    bits.REFUSED | bits.ERROR | bits.OUTCOME_UNKNOWN | bits.WRONG_GOLD_VERSION | bits.CLAIM_CUT | bits.CONTEXTS_CUT
)
_ALL: Final = ((1 << 48) - 1) & ~(_UNKNOWN | TOTAL_UNKNOWN | BY_TEXT)
FILE: Final = "file"
"""The origin of the records of a file; others have the name of an instrumentation, or none."""
BY_REASON: Final[Mapping[str, str]] = {
    constants.NO_IDS: "return the documents with their ids, or call ragmon.record(retrieved=...); [capture] id_from",
    constants.NO_CITATIONS: (
        "return a list of citations, call ragmon.record(citations=...), or have answers cite retrieved documents as [1]"
    ),
    constants.CITATION_FORM: (
        '`[citations] base`: 0 or 1, the first rank of numbers such as [1]; "ids"; "titles" where names are no ids'
    ),
    constants.NO_TEXT: "set `[capture] content`, or `[capture] gold` where no text may leave the application",
    constants.NO_ANSWER: "say where the answer is: @ragmon.trace(extract=...); for spans, as `ragmon doctor` says",
    constants.NO_LATENCY: "record latency_ms.total",
    constants.GOLD_VERSION: "give application and server the same gold file",
    constants.BEYOND_DEPTH: "gate the metric at a rank, @10: of a longer list, 1,000 ranks are kept",
    constants.ID_FORM: "`[gold.NAME] ids` says what an id may differ in from a gold id: `casefold`, `prefix`, `path`",
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
FIELD_OF_REASON: Final[Mapping[str, str]] = {
    constants.NO_IDS: IDS,
    constants.NO_CITATIONS: CITATIONS,
    constants.NO_ANSWER: ANSWER,
    constants.NO_LATENCY: LATENCY,
}
"""The field whose gap is the reason."""
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
    "repeated": "{missing} of {of} answers have the same text and cite nothing",
    "marks": "{missing} of {of} answers have what looks like a citation, in a form that ragmon does not read",
}
_GENAI_SWITCH: Final = (
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY "
    "OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental"
)
_SWITCHES: Final[Mapping[str, str]] = {
    semconv.GENAI: _GENAI_SWITCH,
    semconv.OPENINFERENCE: "unset OPENINFERENCE_HIDE_INPUTS, OPENINFERENCE_HIDE_OUTPUTS and the others of that name",
    semconv.OPENLLMETRY: "TRACELOOP_TRACE_CONTENT=true, or unset it",
    semconv.AGENT_FRAMEWORK: "ENABLE_SENSITIVE_DATA=true",
    semconv.AUTOGEN: (
        "openinference-instrumentation-autogen-agentchat: AutoGen's own spans hold neither question nor answer"
    ),
    semconv.GOOGLE_ADK: f"ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS=true {_GENAI_SWITCH}",
    semconv.HAYSTACK: "HAYSTACK_CONTENT_TRACING_ENABLED=true, before haystack is imported",
    semconv.LAMINAR: "`observe` without `ignore_input` and `ignore_output`",
    semconv.LANGFUSE: "LANGFUSE_OBSERVE_DECORATOR_IO_CAPTURE_ENABLED=true, or unset it",
    semconv.LANGSMITH: "unset LANGSMITH_HIDE_INPUTS and LANGSMITH_HIDE_OUTPUTS",
    semconv.LITELLM: "`litellm.turn_off_message_logging = False`",
    semconv.LOGFIRE: "`@logfire.instrument(extract_args=True, record_return=True)`",
    semconv.MASTRA: "`tracingOptions` without `hideInput` and `hideOutput`",
    semconv.OPENAI_AGENTS: "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA=true, or unset it",
    semconv.OPENLIT: "OPENLIT_CAPTURE_MESSAGE_CONTENT=true, or unset it",
    semconv.PYDANTIC_AI: "`include_content=True` in InstrumentationSettings or logfire.instrument_pydantic_ai",
    semconv.SEMANTIC_KERNEL: "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true",
    semconv.VERCEL: "`recordInputs: true, recordOutputs: true` in `experimental_telemetry`, `telemetry` since AI SDK 7",
}
"""The switch of each instrumentation that puts questions and answers on spans, from its documentation."""
_ANY_SWITCH: Final = (
    "the content switch of the instrumentation: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY, "
    "TRACELOOP_TRACE_CONTENT=true, or OPENINFERENCE_HIDE_INPUTS and OPENINFERENCE_HIDE_OUTPUTS unset"
)
_ATTRIBUTES: Final[Mapping[str, str]] = {
    "question": f"the span attribute `{semconv.RAGMON_QUESTION}`",
    "answer": f"the span attribute `{semconv.RAGMON_CLAIM}`",
}
"""What says question and answer where no switch does."""
_OF_UNKNOWN: Final[Mapping[str, str]] = {
    "prompt": "{attribute}: the spans hold a prompt, and which part of it is the question cannot be told",
    "not_understood": "{attribute}: the spans hold texts in a form that ragmon does not read",
    "uploaded": f"{_GENAI_SWITCH} puts texts on the spans as well as into the storage; or {{attribute}}",
    "attributes_dropped": "a higher OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT: it took attributes of the outermost span away",
    constants.OVERSIZE: "{attribute}: the spans hold texts of more than 1 MiB, which are not read",
    constants.NO_ANSWER: "{attribute}: no span calls a model or is a chain or an agent",
}
"""What says question and answer of spans, by the reason why they are unknown; a switch where content is left out."""
_DECORATED: Final[Mapping[str, str]] = {
    "question": '`@ragmon.trace(question="body.question")` says where the question is, or `ragmon.record(question=…)`',
    "answer": (
        '`@ragmon.trace(extract={"claim": "answer"})` says where the answer is, or `ragmon.record(claim=…)`; '
        'a property is read by a callable: `extract=lambda result: {"claim": result.text}`, and the items of a stream '
        "by `reduce=`"
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
_PLACES: Final[Mapping[str, str]] = {
    "question": "the arguments have a text at `{path}`",
    "answer": "the result has a text at `{path}`",
    "ids": "the result has a list of objects at `{path}`",
}
"""What decorated calls were seen to hold instead."""
_AT_PATH: Final[Mapping[str, str]] = {
    "question": '`@ragmon.trace(question="{path}")` if that is the question, or `ragmon.record(question=…)`',
    "answer": '`@ragmon.trace(extract={{"claim": "{path}"}})` if that is the answer, or `ragmon.record(claim=…)`',
    "ids": (
        '`@ragmon.trace(extract={{"retrieved": "{path}"}})` if these are the documents, or '
        "`ragmon.record(retrieved=documents)`; `[capture] id_from` says where a document's id is"
    ),
}
_OF_SPANS: Final[Mapping[str, str]] = {
    "ids": (
        "an instrumented retriever inside the request, or `[capture] retrievers` names the tool that retrieves; "
        "`[capture] id_from` says where a document's id is"
    ),
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
    "repeated": "if it is a refusal, add that text to `[refusal] tokens`",
    "marks": "marks such as [1] or [ID] with the id of a retrieved document, or a list of citations beside the answer",
}
ENOUGH: Final = 50
"""Records that a live report is of, at least, where there are so many."""
FEW: Final = 0.05
"""Share of missing values that is no gap: one record of twenty."""
NAMED: Final = 5
"""Gates that a sentence names."""
ESSENTIAL: Final = (QUESTION, ANSWER, IDS)
EARLY: Final = 5
"""Live records from which an essential field is named that all of them lack; other gaps are named from `FIRST` on."""
HALF: Final = 0.5
"""Share of missing values above which no verdict is possible, whatever the other values are."""
Needed = tuple[Gate, Outcome | None, frozenset[str]]
"""A gate, its outcome, and the fields it needs."""
REFUSALS: Final = "refusal"
"""The gap of answers that sound like refusals and count as answers."""
REPEATED: Final = "repeated"
"""The gap of an answer that is given again and again and cites nothing."""
MARKS: Final = "marks"
"""The gap of citations in a form that nothing here reads."""
_UNFINISHED: Final = lacks.UNFINISHED
_BITS: Final[Mapping[str, tuple[int, int, int]]] = {
    QUESTION: (lacks.NO_QUESTION, lacks.WITHHELD_QUESTION, 0),
    ANSWER: (lacks.NO_ANSWER, lacks.WITHHELD_ANSWER, _UNFINISHED),
    IDS: (lacks.NO_IDS, 0, _UNFINISHED),
    CONTEXTS: (lacks.NO_CONTEXTS, lacks.WITHHELD_CONTEXTS, _UNFINISHED),
    CITATIONS: (lacks.NO_CITATIONS, 0, _UNFINISHED | lacks.NOT_SHIPPED | lacks.MARKED),
    GOLD: (lacks.NO_GOLD, 0, lacks.NO_QUESTION),
    SESSION: (lacks.NO_SESSION, 0, _UNFINISHED),
    BUILD: (lacks.NO_BUILD, 0, 0),
    LATENCY: (lacks.NO_LATENCY, 0, 0),
}
"""The bits of records that lack a field, where it was withheld, and where there can be none."""
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")  # a key of TOML that needs no quotes
_log = logging.getLogger("ragmon")


class _NotingFacts(Facts):
    """Facts that note the fields behind whatever is read of them."""

    @cached_property
    def noted(self) -> set[str]:
        return set()

    def __getattribute__(self, name: str) -> Any:
        if name in _READS:
            self.noted.update(_READS[name])
        return super().__getattribute__(name)


@lru_cache(_KNOWN_METRICS)
def needs(metric: Metric) -> frozenset[str]:
    """The fields of a record without which a metric cannot be assessed.

    No metric declares its fields: a request whose facts are all known is scored as an answerable and as an unanswerable
    question, and the facts that the metric reads name the fields behind them.

    >>> from ragmon.metrics.base import parse
    >>> sorted(needs(parse("citation_scope"))), sorted(needs(parse("recall@5")))
    (['answer', 'citations', 'ids'], ['gold', 'gold_ids', 'ids', 'question'])
    """
    fields = {GOLD, QUESTION} if metric.needs_gold else set[str]()
    if metric.measured:
        fields |= {ANSWER, CONTEXTS} if metric.reads == "contexts" else set()
    for flags in (_ALL, _ALL & ~ANSWERABLE):
        facts = _NotingFacts(flags, 1, 1, (1,), (1,), (1,))
        try:
            if metric.measured:
                metric.applies(facts)
            else:
                metric.score(facts)
        except (Unassessed, ArithmeticError, LookupError, TypeError, ValueError):
            pass
        fields |= facts.noted
    return frozenset(fields)


class Gap(NamedTuple):
    """A gap as its texts need it.

    Attributes:
        field: The field, a key of the tables below.
        missing, of: Records that lack it, and those that could have it.
        origin: Where the records come from: "" for decorated calls, the name of an instrumentation, `file`.
        ids: Retrieved ids that were compared with gold.
        examples: Some of them, ready to be shown.
        gold_examples: Some ids of gold.
        other_ids: The field of the documents whose values are gold's ids, and the share that is.
        setting: What allows the forms in which ids differ from gold's.
        tokens: The tokens of refusals that there are, where a text is proposed as another one.
        repeats: Whether values of the field occur in several records, as those of a session do.
        path: Where decorated calls hold what may be the field.
        reason: Why spans do not tell question or answer, "" where that is not known.
    """

    field: str
    missing: int
    of: int
    origin: str = ""
    ids: int = 0
    examples: tuple[str, ...] = ()
    gold_examples: tuple[str, ...] = ()
    other_ids: tuple[str, float] | None = None
    setting: str = ""
    tokens: tuple[str, ...] = ()
    repeats: bool = True
    path: str = ""
    reason: str = ""


def sentence(gap: Gap) -> str:
    """A gap in one sentence.

    >>> sentence(Gap("question", 349, 349))
    'no question in 349 of 349 records'
    >>> sentence(Gap("gold_ids", 60, 60, "", 300, ("e1f72df8-…",), ("grey-heron#1",), ("metadata.chunk_id", 0.91)))
    'none of 300 retrieved ids occurs in gold; they look like `e1f72df8-…`, gold like `grey-heron#1`; \
`metadata.chunk_id` would match 91 %'
    """
    if not gap.repeats:
        return f"no session in {gap.missing} of {gap.of} records: their session ids never repeat"
    if gap.field != "gold_ids":
        such_as = ", ".join(gap.examples) if gap.field in (REPEATED, MARKS) else ""
        found = _SENTENCES[gap.field].format(missing=gap.missing, of=gap.of)
        if gap.path:
            return f"{found}; {_PLACES[gap.field].format(path=gap.path)}"
        return f"{found}, such as {such_as}" if such_as else found
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
    'TRACELOOP_TRACE_CONTENT=true, or unset it; if that is so already, the span attribute `ragmon.answer.claim`'
    """
    if gap.field == "gold_ids" and gap.other_ids is not None:
        return f'`[capture] id_from = "{printable(gap.other_ids[0])}"`'
    if gap.setting:
        return gap.setting
    if gap.tokens:
        return f"if it is a refusal, `[refusal] tokens = {json.dumps(gap.tokens, ensure_ascii=False)}`"
    if gap.path:
        return _AT_PATH[gap.field].format(path=gap.path)
    if gap.field in _ANYWHERE:
        return _ANYWHERE[gap.field]
    if not gap.origin:
        return _DECORATED[gap.field]
    if gap.origin == FILE:
        return _OF_FILES[gap.field]
    if gap.field in _OF_SPANS:
        return _OF_SPANS[gap.field]
    template = _OF_UNKNOWN.get(gap.reason, "{switch}; if that is so already, {attribute}")
    return template.format(switch=_SWITCHES.get(gap.origin, _ANY_SWITCH), attribute=_ATTRIBUTES[gap.field])


def remedy_of_record(record: Record, field: str) -> str:
    """The setting that mends a gap of one record that was read from spans."""
    reason = (record.why_unknown or {}).get(_IN_RECORD.get(field, ""), "")
    return remedy(Gap(field, 1, 1, record.instrumentation or "", reason=reason))


def remedy_of_reason(reason: str, source: str) -> str | None:
    """What makes requests of a source assessable that are not for a reason; None where nothing would.

    >>> remedy_of_reason("no_ids", "replay")
    '`retrieved_ids` in the file, or --map retrieved_ids=NAME'
    """
    in_files = _BY_REASON_IN_FILES if source == constants.REPLAY else {}
    return in_files.get(reason) or BY_REASON.get(reason) or _BY_REASON_IN_GOLD.get(reason)


def form_setting(gold: str, ids: AlikeIds) -> str:
    """The setting under which ids of another form are those of gold.

    >>> form_setting("ferry", AlikeIds(("prefix",)))
    '`[gold.ferry] ids = "prefix"`'
    """
    quoted = ", ".join(f'"{form}"' for form in ids.forms)
    name = gold if _BARE.fullmatch(gold) else f'"{gold}"'
    return f"`[gold.{name}] ids = {quoted if len(ids.forms) == 1 else f'[{quoted}]'}`"


def form_remedy(gold: str, ids: AlikeIds) -> str:
    """What makes ids of another form those of gold, with an example where it may be shown.

    >>> form_remedy("ferry", AlikeIds(("casefold", "prefix"), "Fares#0", "fares"))
    'ids differ from gold only in form, `Fares#0` from `fares`: `[gold.ferry] ids = ["casefold", "prefix"]`'
    """
    names = (f"`{shortened(name)}`" for name in (ids.example, ids.gold) if name)
    example = f", {' from '.join(names)}" if ids.example else f", one from {''.join(names)}" if ids.gold else ""
    return f"ids differ from gold only in form{example}: {form_setting(gold, ids)}"


class Covered(NamedTuple):
    """How many items of a gold set were asked by one source.

    Attributes:
        pipeline, source: The pipeline and the source of the requests.
        gold, version: The gold set and its version.
        window: The window.
        seen: The number of distinct items that were asked.
        items: The number of items in the set.
    """

    pipeline: str
    source: str
    gold: str
    version: str
    window: str
    seen: int
    items: int


class Matched(NamedTuple):
    """How much of a pipeline's user traffic matches a gold item.

    Attributes:
        pipeline: The pipeline.
        window: The window.
        matched: Audit members that match an item.
        records: All audit members.
    """

    pipeline: str
    window: str
    matched: int
    records: int


def match_counts(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    """How user traffic matched gold items, over all time, by pipeline; nothing where there is no gold set.

    The counts of a pipeline add up to all audit members of its user traffic; those without an item are `none`. In
    records of one build the way of matching is not known, so such a pipeline is left out.
    """
    by_pipeline: dict[str, dict[str, int]] = {}
    for traffic in matched(snapshot, ALL):
        counts = {how: n for how in MATCH_METHODS if (n := snapshot.matched.get((traffic.pipeline, how), 0))}
        if counts or not traffic.matched:
            by_pipeline[traffic.pipeline] = {**counts, UNMATCHED: traffic.records - traffic.matched}
    return by_pipeline


def matched(snapshot: Snapshot, window: str) -> list[Matched]:
    """How much of each pipeline's user traffic matches a gold item; nothing where there is no gold set."""
    if not snapshot.golds:
        return []
    matching: Counter[str] = Counter()
    for series in _gold_series(snapshot, window):
        if series.source == MATCH:
            matching[series.pipeline] += series.records
    live = (LIVE, window, "", "")
    return [
        Matched(series.pipeline, window, matching[series.pipeline], series.records)
        for series in snapshot.series
        if (series.source, series.window, series.slice, series.gold) == live
    ]


def match_summary(ways: dict[str, int]) -> str:
    """How user traffic matched gold items, in one line for people.

    >>> match_summary({"question": 3, "none": 9})
    '3 of 12 audit records of user traffic match a gold item (25.0 %): 3 by question'
    """
    records = sum(ways.values())
    n = records - ways.get(UNMATCHED, 0)
    how = ", ".join(f"{count} by {method}" for method, count in ways.items() if method != UNMATCHED)
    share = f" ({n / records:.1%})".replace("%", " %") if records else ""
    return f"{n} of {records} audit records of user traffic match a gold item{share}{': ' if how else ''}{how}"


def covered(snapshot: Snapshot, window: str) -> list[Covered]:
    """How many items of every current gold set each source asked."""
    sizes = {(gold.name, gold.version): gold.items for gold in snapshot.golds}
    return [
        Covered(series.pipeline, series.source, series.gold, series.gold_version, window, series.traced, sizes[key])
        for series in _gold_series(snapshot, window)
        if (key := (series.gold, series.gold_version)) in sizes
    ]


def _gold_series(snapshot: Snapshot, window: str) -> Iterator[SeriesStats]:
    return (series for series in snapshot.series if series.gold and (series.window, series.slice) == (window, ""))


@dataclass(frozen=True)
class FieldShare:
    """How many records have a field.

    Attributes:
        present: Records that have it.
        of: Records that could have it: an error has no answer, a refusal no citations.
        withheld: Further records where the application has it and a setting of ragmon keeps it there.
    """

    present: int
    of: int
    withheld: int = 0

    @property
    def ratio(self) -> float | None:
        """The share that has it; None where no record could."""
        return self.present / self.of if self.of else None


@dataclass(frozen=True)
class CaptureGap:
    """A field that records lack, and what would mend it.

    Attributes:
        field: The field.
        missing, of: How many records lack it, of how many that could have it.
        finding: The gap in one sentence.
        remedy: The setting that mends it.
        gates: The gates of the pipeline that need the field.
        blocked: Those of them that cannot be judged for it.
    """

    field: str
    missing: int
    of: int
    finding: str
    remedy: str
    gates: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The finding, and the gates that cannot be judged for it."""
        named = ", ".join(self.blocked[:NAMED]) + (f" and {n} more" if (n := len(self.blocked) - NAMED) > 0 else "")
        return f"{self.finding}; cannot be judged: {named}" if named else self.finding


@dataclass(frozen=True)
class CaptureReport:
    """What was captured of one pipeline and source.

    Attributes:
        pipeline, source: The pipeline and the source.
        records: Records that the report is of.
        since: The start of the first minute it is of, seconds since the epoch; None for a whole run.
        fields: The share of records with each field.
        gaps: The gaps, the worst first.
    """

    pipeline: str
    source: str
    records: int
    since: float | None
    fields: dict[str, FieldShare]
    gaps: tuple[CaptureGap, ...] = ()

    @property
    def worst(self) -> CaptureGap | None:
        """The worst gap that a gate suffers from; None where no gate does."""
        return next((gap for gap in self.gaps if gap.gates), None)

    def data(self) -> dict[str, Any]:
        """The report as plain JSON data."""
        return asdict(self)


def capture_reports(
    scorer: Scorer,
    gates: Callable[[str], Sequence[Gate]],
    outcomes: Iterable[Outcome] = (),
    *,
    whole: bool = False,
    only: tuple[str, str] | None = None,
) -> list[CaptureReport]:
    """The report of every pipeline and source that has records, without the trial records of `ragmon doctor`.

    Args:
        scorer: Has counted the records.
        gates: The gates of a pipeline.
        outcomes: Their outcomes, where they were judged.
        whole: Report everything that was counted instead of the newest records.
        only: The pipeline and source to report; None for all.
    """
    judged = {(outcome.gate.pipeline, outcome.gate.name): outcome for outcome in outcomes}
    metrics, reports = scorer.table.metrics, []
    for (pipeline, source), series in scorer.state.captured:
        if pipeline == DOCTOR_PIPELINE or only not in (None, (pipeline, source)):
            continue
        needed: list[Needed] = []
        for gate in gates(pipeline):
            fields = frozenset({LATENCY}) if gate.kind == "quantile_ratio" else frozenset[str]()
            if gate.kind != "quantile_ratio" and gate.metric in metrics:
                fields = needs(metrics[gate.metric])
            needed.append((gate, judged.get((pipeline, gate.name)), fields))
        items = scorer.gold.items_for(pipeline, source)
        tokens = scorer.rules_of(pipeline).facts.refusal.tokens
        reports.append(_Reader(pipeline, source, series, items, tokens, whole=whole).report(needed))
    return reports


class _Reader:
    """Reads the counts of one pipeline and source."""

    def __init__(
        self,
        pipeline: str,
        source: str,
        series: CapturedSeries,
        items: Items,
        tokens: tuple[str, ...],
        *,
        whole: bool,
    ) -> None:
        self._pipeline, self._source, self._items, self._whole = pipeline, source, items, whole
        self._series, self._tokens = series, tokens
        self._sessions_repeat = not series.sessions.is_never_repeated
        self._since: float | None = None
        if whole:
            self._counts = self._compared = series.whole()
        else:
            self._counts, self._since = series.latest(ENOUGH, lambda bucket: bucket.records)
            # Few questions of users match gold: records to compare are gathered from a longer time.
            self._compared, _ = series.latest(FIRST, lambda bucket: bucket.compared)

    def report(self, gates: Sequence[Needed]) -> CaptureReport:
        shares = {name: share for name in FIELDS if (share := self._share(name)).of or share.withheld}
        gaps: list[CaptureGap] = []
        for name, share in shares.items():
            missing = share.of - share.present
            is_gap = missing > FEW * share.of
            if name in (GOLD, GOLD_IDS):  # most questions of users are in no gold set, and searches fail
                is_gap = share.present == 0 and share.of >= FIRST
            elif self._counts.records < FIRST:
                is_gap = not self._whole and share.present == 0 and share.of >= EARLY and name in ESSENTIAL
            if is_gap:
                needing = [
                    (gate.name, _is_blocked(name, share, outcome))
                    for gate, outcome, needed in gates
                    if name in needed and self._judges_here(gate, outcome)
                ]
                names, blocked = [n for n, _ in needing], [n for n, is_blocked in needing if is_blocked]
                gaps.append(self._gap(name, missing, share.of, names, blocked))
        if self._counts.records >= FIRST:
            refusals = self._counts.count(lambda mask: bool(mask & lacks.UNCOUNTED_REFUSAL))
            answers = self._counts.count(lambda mask: not mask & lacks.NO_ANSWER)
            if refusals > FEW * answers:
                names = [gate.name for gate, _, needed in gates if ANSWER in needed]
                gaps.append(self._gap(REFUSALS, refusals, answers, names))
            marked = self._counts.count(lambda mask: bool(mask & lacks.UNREAD_MARK))
            if marked > FEW * answers:
                names = [gate.name for gate, _, needed in gates if CITATIONS in needed]
                gaps.append(self._gap(MARKS, marked, answers, names))
            gaps += self._repeated([gate.name for gate, _, needed in gates if ANSWER in needed])
        # First what stops most gates; of these what comes first in a request: what follows may be mended with it.
        gaps.sort(key=lambda gap: (-len(gap.blocked), not gap.gates))
        return CaptureReport(self._pipeline, self._source, self._counts.records, self._since, shares, tuple(gaps))

    def _share(self, name: str) -> FieldShare:
        if name == GOLD_IDS:
            return FieldShare(self._compared.count(lambda mask: bool(mask & lacks.IN_GOLD)), self._compared.compared)
        if name == GOLD and not self._items.by_qid:
            return FieldShare(0, 0)
        lacking, withheld, beside = _BITS[name]
        could = [(mask, n) for mask, n in self._counts.masks.items() if not mask & beside]
        kept_back = sum(n for mask, n in could if mask & withheld)
        of = sum(n for _, n in could) - kept_back
        if name == SESSION and not self._sessions_repeat:
            return FieldShare(0, of, kept_back)
        return FieldShare(sum(n for mask, n in could if not mask & lacking), of, kept_back)

    def _judges_here(self, gate: Gate, outcome: Outcome | None) -> bool:
        source = gate.source if outcome is None or not outcome.n else outcome.source
        return source in (None, self._source) or (source == MATCH and self._source == LIVE)

    def _gap(self, name: str, missing: int, of: int, gates: Sequence[str], blocked: Sequence[str] = ()) -> CaptureGap:
        bucket = self._compared if name == GOLD_IDS else self._counts
        # The path whose values fit gold best.
        fitting = {path: count.fitting / count.documents for path, count in bucket.candidates.items() if count.fitting}
        gap = Gap(
            field=name,
            missing=missing,
            of=of,
            origin=self._origin(bucket),
            ids=bucket.ids,
            examples=tuple(bucket.marks if name == MARKS else map(shortened, bucket.examples)),
            gold_examples=tuple(map(shortened, sorted(self._items.ids)[:2])) if name == GOLD_IDS else (),
            other_ids=max(fitting.items(), key=lambda entry: (entry[1], entry[0]), default=None),
            setting=", ".join(form_setting(gold, ids) for gold, ids in bucket.alike.items() if name == GOLD_IDS),
            repeats=name != SESSION or self._sessions_repeat,
        )
        whys = {key: n for key, n in bucket.hidden_why.items() if key.startswith(f"{_IN_RECORD.get(name)}|")}
        if whys:
            gap = gap._replace(reason=max(whys, key=lambda key: (whys[key], key)).partition("|")[2])
        if not gap.origin and name in _AT_PATH:
            gap = gap._replace(path=shapes.path_hints.get(f"{self._pipeline} {name}") or "")
        return CaptureGap(name, missing, of, sentence(gap), remedy(gap), tuple(gates), tuple(blocked))

    def _repeated(self, gates: Sequence[str]) -> Iterator[CaptureGap]:
        # Over all time: an answer that has become a token is named no longer.
        answers = sum(bucket.count(lambda mask: not mask & lacks.NO_ANSWER) for bucket in self._series.buckets)
        for repeat in self._series.repeats.frequent()[:EXAMPLES]:
            where = f"that of trace {repeat.trace}" if repeat.trace else ""
            examples = tuple(filter(None, [json.dumps(repeat.text, ensure_ascii=False) if repeat.text else where]))
            tokens = (*self._tokens, repeat.text) if repeat.text else ()
            gap = Gap(REPEATED, repeat.n, answers, examples=examples, tokens=tokens)
            yield CaptureGap(REPEATED, repeat.n, answers, sentence(gap), remedy(gap), tuple(gates))

    def _origin(self, bucket: CapturedBucket) -> str:
        # Where most records come from: "" for decorated calls, an instrumentation, or a file.
        of_spans = bucket.count(lambda mask: bool(mask & lacks.OF_SPANS))
        of_file = bucket.count(lambda mask: bool(mask & lacks.OF_FILE))
        if 2 * (of_spans + of_file) < bucket.records:
            return ""
        if of_file > of_spans:
            return FILE if self._whole else ""
        return max(bucket.hidden_by.items(), key=lambda entry: (entry[1], entry[0]), default=(constants.OTHER, 0))[0]


def _is_blocked(name: str, share: FieldShare, outcome: Outcome | None) -> bool:
    if name == CITATIONS and not share.present:
        return False  # this pipeline never cites: the gate does not apply to it
    is_most = share.of - share.present > HALF * share.of
    undecided = outcome is not None and outcome.verdict == "insufficient" and outcome.n >= outcome.gate.min_samples
    return is_most or undecided


class CaptureLog:
    """The log lines on what records lack: the worst gap of the first records of a pipeline and source, each gap once.

    Later records are looked at again, because ids are compared with gold only where a question matches a gold item. The
    log outlives an engine: an engine of another configuration goes on with what was named before.
    """

    LOOKS: Final = (FIRST, 10 * FIRST, 100 * FIRST)
    """The numbers of records after which it is looked for."""

    def __init__(self) -> None:
        self._records: Counter[tuple[str, str]] = Counter()
        self._named: set[tuple[str, str, str]] = set()

    def is_due(self, key: tuple[str, str]) -> bool:
        """Count a record of a pipeline and source; returns whether its gaps are to be looked for."""
        if self._records[key] >= self.LOOKS[-1]:
            return False
        self._records[key] += 1
        return self._records[key] in self.LOOKS

    def name(self, report: CaptureReport) -> None:
        """Log the worst gap of a report and its remedy; nothing where no gate suffers from one."""
        gap = report.worst
        if gap is None or (key := (report.pipeline, report.source, gap.field)) in self._named:
            return
        self._named.add(key)
        _log.warning("%s", printable_line(f"{report.pipeline}, {report.source}: {gap.text}; {gap.remedy}"))

    def forget(self, pipeline: str) -> None:
        """Begin anew with a pipeline."""
        self._records = Counter({key: n for key, n in self._records.items() if key[0] != pipeline})
        self._named = {key for key in self._named if key[0] != pipeline}
