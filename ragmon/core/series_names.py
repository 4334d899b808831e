"""Names and label values of the Prometheus series; the exporter, the rules and the dashboards read them here.

A quality metric is called after its class, `rag_<metric>`, with the suffixes below.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import Final

from ragmon.core.escaping import printable

LONGEST: Final = 128
"""Characters of a label value; Prometheus rejects the whole scrape if one value exceeds its limit."""
_DIGITS: Final = 8


@lru_cache(maxsize=4096)
def label(text: str) -> str:
    """A label value: printable, at most 128 characters. A value that had to be changed ends in a hash, to stay unique.

    >>> label("support"), len(label("x" * 10_000))
    ('support', 128)
    """
    safe = printable(text, LONGEST)
    if safe == text:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    return f"{safe[: LONGEST - _DIGITS - 1]}~{hashlib.sha256(raw).hexdigest()[:_DIGITS]}"


PREFIX: Final = "rag_"
"""Prefix of a metric: the value in a window."""
LOWER: Final = "_lower"
UPPER: Final = "_upper"
SAMPLES: Final = "_samples"
SCORE: Final = "_score_total"
SCORED: Final = "_scored_total"
SQUARES: Final = "_score_squares_total"
PPI: Final = "_ppi"
"""Suffixes: bounds and samples in a window; counters that add up over replicas and time; estimates from labels and a
proxy."""

REQUESTS: Final = "rag_requests_total"
ERRORS: Final = "rag_errors_total"
LATENCY: Final = "rag_e2e_latency_seconds"
STAGE_LATENCY: Final = "rag_stage_latency_seconds"
DOCUMENTS: Final = "rag_retrieved_documents"
SLICE_SCORE: Final = "rag_slice_score_total"
SLICE_SCORED: Final = "rag_slice_scored_total"

GATE_THRESHOLD: Final = "ragmon_gate_threshold"
GATE_VALUE: Final = "ragmon_gate_value"
GATE_LOWER: Final = "ragmon_gate_lower"
GATE_UPPER: Final = "ragmon_gate_upper"
GATE_SAMPLES: Final = "ragmon_gate_samples"
GATE_STATUS: Final = "ragmon_gate_status"
GATE_INFO: Final = "ragmon_gate_info"
GATE_ALARM: Final = "ragmon_gate_alarm"
GATE_EVIDENCE: Final = "ragmon_gate_evidence"
GATE_BASELINE: Final = "ragmon_gate_baseline"
GATE_BASELINE_INFO: Final = "ragmon_gate_baseline_info"

GOLD_LOWER: Final = "ragmon_gold_lower"
GOLD_UPPER: Final = "ragmon_gold_upper"
GOLD_N_EFF: Final = "ragmon_gold_n_eff"
GOLD_INFO: Final = "ragmon_gold_info"
GOLD_ITEMS: Final = "ragmon_gold_items"
GOLD_ITEMS_SEEN: Final = "ragmon_gold_items_seen"
GOLD_MATCH: Final = "ragmon_gold_match_total"
PROXY_GAIN: Final = "ragmon_proxy_gain"

RECEIVED: Final = "ragmon_records_received_total"
RECORDS_SCORED: Final = "ragmon_records_scored_total"
IGNORED: Final = "ragmon_records_ignored_total"
DROPPED: Final = "ragmon_records_dropped_total"
DUPLICATE: Final = "ragmon_records_duplicate_total"
PENDING: Final = "ragmon_records_pending"
RESIDUAL: Final = "ragmon_accounting_residual"
ORPHANS: Final = "ragmon_orphan_records_total"
SPANS_DROPPED: Final = "ragmon_spans_dropped_total"
JUDGE_CALLS: Final = "ragmon_judge_calls_total"
REDACTION_FAILURES: Final = "ragmon_redaction_failures_total"
LABELS: Final = "ragmon_labels_total"
LABELS_WAITING: Final = "ragmon_labels_waiting"
UNASSESSED: Final = "ragmon_unassessed_total"
BUILD_SEEN: Final = "ragmon_build_seen_info"
RELOADED: Final = "ragmon_config_last_reload_successful"
LAST_SCORED: Final = "ragmon_last_scored_timestamp_seconds"
BUILD_INFO: Final = "ragmon_build_info"
SERIES: Final = "ragmon_series"
NAMES_OVERFLOW: Final = "ragmon_names_overflow_total"

REFUSED: Final = "ragmon_requests_refused_total"
PRODUCER_DROPPED: Final = "ragmon_producer_records_dropped_total"
PRODUCER_MISSING: Final = "ragmon_producer_records_missing"
FIELDS_UNKNOWN: Final = "ragmon_fields_unknown_total"
PROBES: Final = "ragmon_probe_requests_total"
PROBE_RECORDS: Final = "ragmon_probe_records_total"
STATE_RESETS: Final = "ragmon_state_reset_total"
CLOCK_JUMPS: Final = "ragmon_clock_jumps_total"
JOURNAL_BYTES: Final = "ragmon_journal_bytes"
JOURNAL_WRITABLE: Final = "ragmon_journal_writable"
