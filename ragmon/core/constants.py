"""Names and numbers that several modules must spell the same way: tokens, sources, strata, reasons, reserved names.

Rules, dashboards, the exporter and the report import these, so they cannot drift apart.
"""

from __future__ import annotations

from typing import Final

BUCKET_SECONDS: Final = 10
"""Seconds of a fresh window bucket, and of the counts per gold item beside it."""
HOUR: Final = 3600
FOLDED_SECONDS: Final = 300
"""Seconds of an old window bucket, into which fresh buckets are folded."""
FRESH: Final = 3600 + FOLDED_SECONDS
"""Seconds for which window buckets stay fresh: windows up to an hour have edges every `BUCKET_SECONDS` seconds."""

CONTRACT_VERSION: Final = 1
REFUSAL_TOKEN: Final = "not in context"  # noqa: S105 - an answer, no password
"""The exact answer of a pipeline that refuses."""

DISABLED: Final = "RAGMON_DISABLED"
ON: Final = ("1", "true", "yes", "on")
"""The environment variable that switches ragmon off, and the values with which it does."""
STRICT: Final = "RAGMON_STRICT"
"""The environment variable that lets `ragmon.install` raise, with the same values."""

DEFAULT_PIPELINE: Final = "default"
DOCTOR_PIPELINE: Final = "ragmon-doctor"
"""The pipeline of the trial records of `ragmon doctor`; no application uses it."""
OTHER: Final = "__other__"
"""The label value under which everything past a cap is counted."""
DROPPED_PIPELINES: Final = "__gone__"
"""Stands for all pipelines whose series were dropped: their sums count in totals over all pipelines."""

# Kinds of names whose number is limited.
PIPELINE_NAMES: Final = "pipeline"
SOURCE_NAMES: Final = "source"
BUILD_NAMES: Final = "build"
CODE_NAMES: Final = "error_code"
PRODUCER_NAMES: Final = "producer"
NAME_KINDS: Final = (PIPELINE_NAMES, SOURCE_NAMES, BUILD_NAMES, CODE_NAMES, PRODUCER_NAMES)

# Sources: where a record comes from. Different sources never share a denominator.
LIVE: Final = "live"
PROBE: Final = "probe"
MATCH: Final = "match"
LABEL: Final = "label"
REPLAY: Final = "replay"
SOURCES: Final = (LIVE, PROBE, MATCH, LABEL, REPLAY)
ALSO_LIVE_SOURCES: Final = (MATCH, LABEL)
"""Sources of requests that are counted as user traffic, too."""

# How the gold item of a user's question was found.
BY_QID: Final = "qid"
BY_QUESTION: Final = "question"
BY_PARAPHRASE: Final = "paraphrase"
BY_HASH: Final = "hash"
BY_EMBEDDING: Final = "embedding"
UNMATCHED: Final = "none"
MATCH_METHODS: Final = (BY_QID, BY_QUESTION, BY_PARAPHRASE, BY_HASH, BY_EMBEDDING, UNMATCHED)
HEAD_NOTE: Final = (
    "questions of users that match a gold item are the frequent ones: numbers on them do not describe all traffic"
)
"""The note beside every number on matched questions."""

LABELS: Final = "labels"
"""The gold set name of labels in series and gates; no gold set may have this name."""

PROBE_TAG: Final = "ragmon.probe"
"""The tag of a probe's record; its value is the name of the probe."""

# Strata: the outcome of a call that decides its sampling rate.
REST: Final = "rest"
STRATA: Final = ("error", "refusal", "slow", REST)
UNKNOWN_WEIGHT: Final = "unknown_weight"
"""Calls whose parent was sampled at an unknown rate: kept and counted, but in no estimate."""
SAMPLED: Final = "sampled"
"""The stratum of records whose spans say that a sampler kept them, and not with which probability."""
CALL_STRATA: Final = (*STRATA, UNKNOWN_WEIGHT)

# Estimands: the population that a gold estimate is about.
GOLD_SET: Final = "gold_set"
QUESTIONS_LIKE_THESE: Final = "questions_like_these"

# The population that a live estimate is about.
ALL_CALLS: Final = "all calls"
EXPORTED_TRAFFIC: Final = "exported traffic"
SAMPLED_TRAFFIC: Final = "the traffic that a sampler kept"

STAGES: Final = ("total", "retrieve", "generate")
LATENCY: Final = "latency"
"""Stands for a metric in alarms on latency; no metric may have this name."""

INDEX_HASH: Final = "index_hash"
"""The same in alarms on the index."""

ALARM_LOG: Final = "ragmon.alarms"
"""The logger of alarms; pages are logged as warnings."""

# Severity of an alarm: act at once, today, this week.
PAGE: Final = "page"
LOOK: Final = "look"
TICKET: Final = "ticket"

# Why a metric could not be assessed on a record.
NO_IDS: Final = "no_ids"
NO_CITATIONS: Final = "no_citations"
"""No list of citations was captured; an empty list is captured, and says that the answer cites nothing."""
CITATION_FORM: Final = "citation_form"
"""The citations are written otherwise than ids: ranks of which it is undecided whether they count from 0 or from 1, or
names of another form."""
NO_TEXT: Final = "no_text"
NO_GOLD_CLAIM: Final = "no_gold_claim"
NO_GOLD_CITATIONS: Final = "no_gold_citations"
NO_LATENCY: Final = "no_latency"
NO_ANSWER: Final = "no_answer"
ERROR: Final = "error"
TOTAL_UNKNOWN: Final = "total_unknown"
GOLD_VERSION: Final = "gold_version"
BEYOND_DEPTH: Final = "beyond_depth"
ID_FORM: Final = "id_form"
"""An id differs from a gold id in form alone: in case, a prefix, the number of a chunk."""
TEXT_CUT: Final = "text_cut"
"""The text is longer than the part that is read, and the searched phrase is not in that part."""
PARTIAL: Final = "partial"
"""The call was kept for its outcome, and by its sampling rule without the details; or it neither returned nor failed:
its caller left, or was refused, and no answer was due."""
REASONS: Final = (
    NO_IDS,
    NO_CITATIONS,
    CITATION_FORM,
    NO_TEXT,
    NO_GOLD_CLAIM,
    NO_GOLD_CITATIONS,
    NO_LATENCY,
    NO_ANSWER,
    ERROR,
    TOTAL_UNKNOWN,
    GOLD_VERSION,
    BEYOND_DEPTH,
    ID_FORM,
    TEXT_CUT,
    PARTIAL,
)
IGNORABLE: Final = frozenset({PARTIAL, ERROR, NO_GOLD_CLAIM, NO_GOLD_CITATIONS, TOTAL_UNKNOWN})
"""Reasons that cannot depend on the outcome that a metric measures.

Sampling chose the request, the gold item has nothing to compare with, or the call gave no answer: it ended in an error,
which `error_rate` counts, or its caller left or was refused. Every other reason may go with good or with bad outcomes,
so both are taken into account.
"""

# Why a field of a record is unknown or was cut.
OUT_OF_RANGE: Final = "out_of_range"
"""The number would make every sum it enters useless."""
TOO_MANY_DOCUMENTS: Final = "too_many_documents"
"""The list of documents is longer than the depth to which ranks are kept; the rest is left out."""
UNREADABLE: Final = "unreadable"
"""The value is none of the field's: of another type, or written in a form that is not certain."""

# Why a line did not become a record, or a record was not scored.
MALFORMED_JSON: Final = "malformed_json"
MALFORMED_ROW: Final = "malformed_row"
INVALID_UTF8: Final = "invalid_utf8"
INVALID_SCHEMA: Final = "invalid_schema"
NON_FINITE: Final = "non_finite"
DEPTH: Final = "depth"
OVERSIZE: Final = "oversize"
TRUNCATED: Final = "truncated"
TOO_OLD: Final = "too_old"
TOO_FUTURE: Final = "too_future"
QUEUE_FULL: Final = "queue_full"
SHUTDOWN_TIMEOUT: Final = "shutdown_timeout"
EXPORT_FAILED: Final = "export_failed"
EXPORT_REFUSED: Final = "export_refused"
EXPORT_TIMEOUT: Final = "export_timeout"
UNCONFIRMED: Final = "unconfirmed"
"""Sent to a peer that never responded: the records may have arrived."""
FORKED: Final = "forked"
"""Captured in a forked process that has no exporter."""
PROCESS_DIED: Final = "process_died"
SCORER_ERROR: Final = "scorer_error"
QUARANTINED: Final = "quarantined"
"""In quarantine: the process crashed or hung twice while it worked on this record."""
DEADLINE_EXCEEDED: Final = "deadline_exceeded"
"""The trace took longer to assemble than the deadline allows."""
CLOCK_AHEAD: Final = "clock_ahead"
"""The clock of the producer that put it into a log was ahead of the log's time."""
LOG_DELETED: Final = "log_deleted"
"""The log was deleted before all spans of the trace were there."""

JUDGE_PREFIX: Final = "judge_"
"""Prefix of a judge's metric; the name of the judge follows."""

# Results of a judging task; `queue_full` is one, too.
SCORED: Final = "scored"
CACHED: Final = "cached"
JUDGE_ERROR: Final = "judge_error"
TIMEOUT: Final = "timeout"
RATE_LIMITED: Final = "rate_limited"
BUDGET: Final = "budget"
SKIPPED: Final = "skipped"
"""There was nothing to judge, or the caller no longer waited for the score."""
JUDGE_RESULTS: Final = (SCORED, CACHED, JUDGE_ERROR, TIMEOUT, RATE_LIMITED, BUDGET, QUEUE_FULL, SKIPPED)

# Suffixes that have a meaning in Prometheus or ragmon; no metric name may end in one.
RESERVED_ENDINGS: Final = (
    "_lower",
    "_upper",
    "_samples",
    "_total",
    "_score",
    "_scored",
    "_info",
    "_bucket",
    "_sum",
    "_count",
)
RESERVED_NAMES: Final = (
    LATENCY,
    INDEX_HASH,
    "requests",
    "errors",
    "slice",
    "retrieved_documents",
    "e2e_latency_seconds",
    "stage_latency_seconds",
)
"""Series `rag_<name>` that exist already; no metric may have such a name."""

EMPTY_REFERENCE: Final = ("unanswerable", "skip")
"""What a row without a reference may mean: the question has no answer, or the row is left out."""

LABELS_PATH: Final = "/v1/labels"
ACKS_PATH: Final = "/v1/ack"
"""The paths of the write port that take JSON."""
