"""Every name that more than one module must spell the same way: tokens, sources, reasons, series names.

Rules, dashboards, the exporter and the report import these, so they cannot drift apart.
"""

from __future__ import annotations

from typing import Final

STEP: Final = 10
"""Seconds of a fresh row, and of the table beside it."""


HOUR: Final = 3600


FOLDED: Final = 300
"""Seconds of an old row."""


FRESH: Final = 3600 + FOLDED
"""How long rows stay fresh: windows up to an hour have edges every `STEP` seconds."""


CONTRACT_VERSION: Final = 1
REFUSAL_TOKEN: Final = "not in context"  # noqa: S105 - a token of speech
"""The exact answer of a pipeline that refuses."""

DISABLED: Final = "RAGMON_DISABLED"
ON: Final = ("1", "true", "yes", "on")
"""The environment variable that switches ragmon off, and the values that do."""

DEFAULT_PIPELINE: Final = "default"
OTHER: Final = "__other__"
"""The label value under which everything past a cap is counted."""
GONE: Final = "__gone__"
"""Stands for all pipelines whose series were given up: their sums count where no pipeline is named."""

# Kinds of names that outgrew what is kept apart of them.
PIPELINE_NAMES: Final = "pipeline"
SOURCE_NAMES: Final = "source"
BUILD_NAMES: Final = "build"
CODE_NAMES: Final = "error_code"
PRODUCER_NAMES: Final = "producer"
NAME_KINDS: Final = (PIPELINE_NAMES, SOURCE_NAMES, BUILD_NAMES, CODE_NAMES, PRODUCER_NAMES)

# Sources: where a record comes from. They are never pooled in one denominator.
LIVE: Final = "live"
PROBE: Final = "probe"
MATCH: Final = "match"
LABEL: Final = "label"
REPLAY: Final = "replay"
SOURCES: Final = (LIVE, PROBE, MATCH, LABEL, REPLAY)
AGAIN: Final = (MATCH, LABEL)
"""Sources of requests that are user traffic as well."""

# How the gold item of a user's question was found.
BY_QID: Final = "qid"
BY_QUESTION: Final = "question"
BY_PARAPHRASE: Final = "paraphrase"
BY_HASH: Final = "hash"
BY_EMBEDDING: Final = "embedding"
UNMATCHED: Final = "none"
WAYS: Final = (BY_QID, BY_QUESTION, BY_PARAPHRASE, BY_HASH, BY_EMBEDDING, UNMATCHED)

LABELS: Final = "labels"
"""How series and gates call the gold that labels are; no gold set may be called so."""

PROBE_TAG: Final = "ragmon.probe"
"""The tag of a record that a prober made: the probe's name."""

# Strata: what a call was kept for.
REST: Final = "rest"
STRATA: Final = ("error", "refusal", "slow", REST)
UNKNOWN_WEIGHT: Final = "unknown_weight"
"""Calls under a parent that was sampled nobody knows how: kept, counted, and in no estimate."""
CALL_STRATA: Final = (*STRATA, UNKNOWN_WEIGHT)

# Estimands: what a gold number is a number of.
GOLD_SET: Final = "gold_set"
QUESTIONS_LIKE_THESE: Final = "questions_like_these"

# What a live number is a number of.
ALL_CALLS: Final = "all calls"
EXPORTED_TRAFFIC: Final = "exported traffic"

STAGES: Final = ("total", "retrieve", "generate")
LATENCY: Final = "latency"
"""What alarms on time are about; no metric, and no metric may be called so."""

INDEX_HASH: Final = "index_hash"
"""The same for alarms on the index."""

ALARM_LOG: Final = "ragmon.alarms"
"""The logger that is told of alarms: pages are warnings."""

# How urgent an alarm is: at once, today, this week.
PAGE: Final = "page"
LOOK: Final = "look"
TICKET: Final = "ticket"

# Why a metric could not be assessed on a record.
NO_IDS: Final = "no_ids"
NO_TEXT: Final = "no_text"
NO_GOLD_CLAIM: Final = "no_gold_claim"
NO_GOLD_CITATIONS: Final = "no_gold_citations"
NO_LATENCY: Final = "no_latency"
NO_ANSWER: Final = "no_answer"
ERROR: Final = "error"
TOTAL_UNKNOWN: Final = "total_unknown"
GOLD_VERSION: Final = "gold_version"
BEYOND_DEPTH: Final = "beyond_depth"
TEXT_CUT: Final = "text_cut"
"""A text is longer than what is read of it, and what was looked for is not in that part."""
REASONS: Final = (
    NO_IDS,
    NO_TEXT,
    NO_GOLD_CLAIM,
    NO_GOLD_CITATIONS,
    NO_LATENCY,
    NO_ANSWER,
    ERROR,
    TOTAL_UNKNOWN,
    GOLD_VERSION,
    BEYOND_DEPTH,
    TEXT_CUT,
)

# Why a field of a record is unknown, or cut.
OUT_OF_RANGE: Final = "out_of_range"
"""A number that would spoil every sum it is in."""
TOO_MANY_DOCUMENTS: Final = "too_many_documents"
"""A list of documents that goes on beyond the depth to which ranks are kept; what comes after is left out."""

# Why a line never became a record, or a record was not scored.
MALFORMED_JSON: Final = "malformed_json"
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
"""Given to a peer that never answered: it may have arrived."""
FORKED: Final = "forked"
"""Captured in a forked process that has nowhere to send it."""
PROCESS_DIED: Final = "process_died"
SCORER_ERROR: Final = "scorer_error"
QUARANTINED: Final = "quarantined"
"""Set aside: twice the process ended or froze while it worked on it."""
DEADLINE_EXCEEDED: Final = "deadline_exceeded"
"""A trace that took longer to assemble than any may."""

JUDGE_PREFIX: Final = "judge_"
"""What the metric of a judge is called, before the judge's name."""

# What became of a request that a judge was to look at; `queue_full` as well.
SCORED: Final = "scored"
CACHED: Final = "cached"
JUDGE_ERROR: Final = "judge_error"
TIMEOUT: Final = "timeout"
RATE_LIMITED: Final = "rate_limited"
BUDGET: Final = "budget"
SKIPPED: Final = "skipped"
"""There was nothing to judge, or nobody waited for it any longer."""
JUDGE_RESULTS: Final = (SCORED, CACHED, JUDGE_ERROR, TIMEOUT, RATE_LIMITED, BUDGET, QUEUE_FULL, SKIPPED)

# Endings Prometheus or ragmon itself gives a meaning to; no metric may be called so.
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
"""Series `rag_<name>` that exist already; no metric may be called so."""
