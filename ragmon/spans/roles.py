"""What a span did in a RAG request, told from what its instrumentation wrote on it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum, auto
from typing import Any, Final

from ragmon import attributes as keys
from ragmon.spans.model import Span
from ragmon.spans.values import decode


class Role(Enum):
    """What a span did."""

    WORKFLOW = auto()
    """Holds a whole request or a part of it: a chain, an agent."""
    RETRIEVAL = auto()
    RERANKING = auto()
    GENERATION = auto()
    """Asked a language model."""
    ASIDE = auto()
    """A judge's work, and all inside it: not the application's traffic."""
    STEP = auto()
    """Anything else."""


_KINDS: Final = {
    keys.CHAIN: Role.WORKFLOW,
    keys.AGENT: Role.WORKFLOW,
    keys.RETRIEVER: Role.RETRIEVAL,
    keys.RERANKER: Role.RERANKING,
    keys.LLM: Role.GENERATION,
    keys.EVALUATOR: Role.ASIDE,
}
_OPERATIONS: Final = {
    keys.INVOKE_WORKFLOW: Role.WORKFLOW,
    "invoke_agent": Role.WORKFLOW,
    keys.RETRIEVAL: Role.RETRIEVAL,
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
    (keys.SPAN_KIND, _KINDS),
    (keys.OPERATION, _OPERATIONS),
    (keys.TRULENS_KIND, _TRULENS),
    (keys.REQUEST_TYPE, _REQUEST_TYPES),
    (keys.TRACELOOP_KIND, _TRACELOOP),
)
_RETRIEVER: Final = re.compile(r"Retriever\.(?:task|workflow)")
"""How OpenLLMetry calls LlamaIndex's retrievers; nothing else on their spans says what they are."""
_HITS: Final = (keys.QUERY_RESULT, keys.SEARCH_RESULT)
_SCORED_NODE: Final = "NodeWithScore"


def role_of(span: Span) -> Role:
    """What a span did. Where its conventions disagree, what is more specific than "a chain" holds."""
    held = span.attributes
    if held.get(keys.RAGMON_INTERNAL) is True:
        return Role.ASIDE
    told = [roles[value] for key, roles in _CONVENTIONS if isinstance(value := held.get(key), str) and value in roles]
    exact = next((role for role in told if role is not Role.WORKFLOW), None)
    if exact is Role.GENERATION and _only_builds_a_prompt(held):
        return Role.STEP
    found = _of_llama_index(held) if exact is None else exact
    if found is not None:
        return found
    return Role.WORKFLOW if told or keys.RAGMON_RECORD in held else _by_content(span)


def _only_builds_a_prompt(held: Mapping[str, Any]) -> bool:
    """OpenInference's Haystack instrumentation calls prompt builders LLMs."""
    asked = (keys.LLM_MODEL, f"{keys.LLM_INPUT}.0.{keys.MESSAGE}.role", f"{keys.LLM_OUTPUT}.0.{keys.MESSAGE}.role")
    return keys.PROMPT_TEMPLATE in held and not any(key in held for key in asked)


def _by_content(span: Span) -> Role:
    """What documents or messages on a span nobody named say it did."""
    held = span.attributes
    if keys.DOCUMENTS in held or keys.VECTOR_TOP_K in held or any(event.name in _HITS for event in span.events):
        return Role.RETRIEVAL
    # OpenLLMetry names the operation on some models' spans only.
    return Role.GENERATION if keys.OUTPUT_MESSAGES in held else Role.STEP


def _of_llama_index(held: Mapping[str, Any]) -> Role | None:
    """What a step of LlamaIndex did that its instrumentation calls a chain or a task."""
    name = held.get(keys.ENTITY_NAME)
    if isinstance(name, str) and _RETRIEVER.search(name):
        return Role.RETRIEVAL
    output = held.get(keys.OUTPUT_VALUE, held.get(keys.ENTITY_OUTPUT))
    if not isinstance(output, str) or not output.startswith("[") or _SCORED_NODE not in output:
        return None
    return _of_nodes(decode(held.get(keys.INPUT_VALUE, held.get(keys.ENTITY_INPUT))))


def _of_nodes(asked: Any) -> Role | None:
    """What a LlamaIndex step did that returned scored nodes: its postprocessors are given nodes, its retrievers not."""
    if not isinstance(asked, dict):
        return None
    if "nodes" in asked:
        return Role.RERANKING
    return Role.RETRIEVAL if any("query" in name for name in asked) else None
