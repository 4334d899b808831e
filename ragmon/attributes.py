"""Attribute keys of spans, metrics and log events: ragmon's own, and those of the conventions it reads and writes.

Sources: OpenTelemetry semantic conventions for generative AI (status: development), OpenInference's semantic conventions,
OpenLLMetry's and TruLens's span attributes.
"""

from __future__ import annotations

from typing import Final

# ragmon's own.
RAGMON_CONTRACT_VERSION: Final = "ragmon.contract.version"
RAGMON_RECORD: Final = "ragmon.record"
"""On the root span: the whole record as one line of the trace contract. Such a span is complete alone."""
RAGMON_QID: Final = "ragmon.qid"
RAGMON_PROBABILITY: Final = "ragmon.sampling.probability"
RAGMON_CLAIM: Final = "ragmon.answer.claim"
RAGMON_CITATIONS: Final = "ragmon.answer.citations"
RAGMON_INTERNAL: Final = "ragmon.internal"
"""On spans of ragmon's own work, a judge's calls: never monitored as traffic."""

# OpenTelemetry, generative AI.
OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
RETRIEVAL: Final = "retrieval"
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
DATA_SOURCE: Final = "gen_ai.data_source.id"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
QUERY_TEXT: Final = "gen_ai.retrieval.query.text"
DOCUMENTS: Final = "gen_ai.retrieval.documents"
"""A JSON array of `{"id", "score", ...}`, in rank order."""
TOP_K: Final = "gen_ai.retrieval.top_k"
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"

# OpenInference.
SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
