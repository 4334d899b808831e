"""What a span did in a RAG request, told from what its instrumentation wrote on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ragmon.core import semconv
from ragmon.spans.flattened import flattened
from ragmon.spans.model import Span
from ragmon.spans.values import decode


class Role:
    """What a span did: a bit each, so that one number says what all the spans around another one did."""

    STEP: Final = 0
    """Nothing of what follows."""
    WORKFLOW: Final = 1
    """Holds a whole request or a part of it: a chain, an agent."""
    RETRIEVAL: Final = 2
    RERANKING: Final = 4
    GENERATION: Final = 8
    """Asked a language model."""
    ASIDE: Final = 16
    """A judge's work, and all inside it: not the application's traffic."""
    CHECK: Final = 32
    """A guardrail; what models say inside it is no answer."""


_KINDS: Final = {
    semconv.CHAIN: Role.WORKFLOW,
    semconv.AGENT: Role.WORKFLOW,
    semconv.RETRIEVER: Role.RETRIEVAL,
    semconv.RERANKER: Role.RERANKING,
    semconv.LLM: Role.GENERATION,
    semconv.EVALUATOR: Role.ASIDE,
    semconv.GUARDRAIL: Role.CHECK,
}
_OPERATIONS: Final = {
    semconv.INVOKE_WORKFLOW: Role.WORKFLOW,
    "invoke_agent": Role.WORKFLOW,
    semconv.RETRIEVAL: Role.RETRIEVAL,
    "vector_db_retrieve": Role.RETRIEVAL,  # OpenLLMetry
    "rerank": Role.RERANKING,
    "chat": Role.GENERATION,
    "text_completion": Role.GENERATION,
    "generate_content": Role.GENERATION,
}
_TRACELOOP: Final = {"workflow": Role.WORKFLOW, "agent": Role.WORKFLOW}
_REQUEST_TYPES: Final = {"chat": Role.GENERATION, "completion": Role.GENERATION, "rerank": Role.RERANKING}
_TRULENS: Final = {
    "record_root": Role.WORKFLOW,
    "retrieval": Role.RETRIEVAL,
    "reranking": Role.RERANKING,
    "generation": Role.GENERATION,
    "eval_root": Role.ASIDE,
    "eval": Role.ASIDE,
    "eval_decision": Role.ASIDE,
}
_CONVENTIONS: Final = (
    (semconv.SPAN_KIND, _KINDS),
    (semconv.OPERATION, _OPERATIONS),
    (semconv.TRULENS_KIND, _TRULENS),
    (semconv.REQUEST_TYPE, _REQUEST_TYPES),
    (semconv.TRACELOOP_KIND, _TRACELOOP),
)
_RETRIEVER: Final = re.compile(r"Retriever\.(?:task|workflow)")
"""How OpenLLMetry calls LlamaIndex's retrievers; nothing else on their spans says what they are."""
_HITS: Final = (semconv.QUERY_RESULT, semconv.SEARCH_RESULT)
_SCORED_NODE: Final = "NodeWithScore"
_ROLE: Final = f"{semconv.MESSAGE}.role"


def role_of(span: Span) -> int:
    """What a span did. Where its conventions disagree, what is more specific than "a chain" holds."""
    held = span.attributes
    if held.get(semconv.RAGMON_INTERNAL) is True:
        return Role.ASIDE
    told = Role.STEP
    for key, roles in _CONVENTIONS:
        value = held.get(key)
        if isinstance(value, str):
            told = roles.get(value, told)
            if told > Role.WORKFLOW:
                return Role.STEP if told == Role.GENERATION and _only_builds_a_prompt(held) else told
    found = _of_llama_index(held)
    if found is not None:
        return found
    return Role.WORKFLOW if told or semconv.RAGMON_RECORD in held else _by_content(span)


def _only_builds_a_prompt(held: Mapping[str, Any]) -> bool:
    """OpenInference's Haystack instrumentation calls prompt builders LLMs."""
    if semconv.PROMPT_TEMPLATE not in held or semconv.LLM_MODEL in held:
        return False
    return not any(
        _ROLE in row for name in (semconv.LLM_INPUT, semconv.LLM_OUTPUT) for row in flattened(held, name).rows()[:1]
    )


def _by_content(span: Span) -> int:
    """What documents or messages on a span nobody named say it did."""
    held = span.attributes
    if semconv.DOCUMENTS in held or semconv.VECTOR_TOP_K in held or any(event.name in _HITS for event in span.events):
        return Role.RETRIEVAL
    # OpenLLMetry names the operation on some models' spans only.
    return Role.GENERATION if semconv.OUTPUT_MESSAGES in held else Role.STEP


def _of_llama_index(held: Mapping[str, Any]) -> int | None:
    """What a step of LlamaIndex did that its instrumentation calls a chain or a task."""
    name = held.get(semconv.ENTITY_NAME)
    if isinstance(name, str) and _RETRIEVER.search(name):
        return Role.RETRIEVAL
    output = held.get(semconv.OUTPUT_VALUE, held.get(semconv.ENTITY_OUTPUT))
    if not isinstance(output, str) or not output.startswith("[") or _SCORED_NODE not in output:
        return None
    return _of_nodes(decode(held.get(semconv.INPUT_VALUE, held.get(semconv.ENTITY_INPUT))))


def _of_nodes(asked: Any) -> int | None:
    """What a LlamaIndex step did that returned scored nodes: its postprocessors are given nodes, its retrievers not."""
    if not isinstance(asked, dict):
        return None
    if "nodes" in asked:
        return Role.RERANKING
    return Role.RETRIEVAL if any("query" in name for name in asked) else None
