"""MLflow and Langfuse, in the words of OpenInference: a span of theirs has a type, an input and an output.

MLflow writes every value as JSON, texts too; Langfuse only what is no text.

Sources: mlflow-tracing 3.17 (`mlflow.tracing.constant`), langfuse 5.0 (`langfuse._client.attributes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from ragmon.core import semconv
from ragmon.ingest.spans.model import Span
from ragmon.ingest.spans.values import as_text, decode, decode_container


class Platform(NamedTuple):
    """The keys of a platform's attributes.

    Attributes:
        type: The type of a span; without it a span is none of the platform.
        given: The input.
        returned: The output.
        model: The model's name.
        workflow: The trace's name.
        kinds: OpenInference's kinds by the platform's types, in lower case.
        others: Keys of the conventions by other keys of the platform.
        as_json: Whether texts are written as JSON.
    """

    type: str
    given: str
    returned: str
    model: str
    workflow: str
    kinds: Mapping[str, str]
    others: Mapping[str, str]
    as_json: bool


_KINDS: Final = {
    "chain": semconv.CHAIN,
    "workflow": semconv.CHAIN,
    "agent": semconv.AGENT,
    "retriever": semconv.RETRIEVER,
    "reranker": semconv.RERANKER,
    "llm": semconv.LLM,
    "chat_model": semconv.LLM,
    "generation": semconv.LLM,
    "tool": semconv.TOOL,
    "embedding": semconv.EMBEDDING,
    "guardrail": semconv.GUARDRAIL,
    "evaluator": semconv.EVALUATOR,
}
MLFLOW: Final = Platform(
    type="mlflow.spanType",
    given="mlflow.spanInputs",
    returned="mlflow.spanOutputs",
    model="mlflow.llm.model",
    workflow="mlflow.traceTag.workflow",
    kinds=_KINDS,
    others={
        "mlflow.trace.session": semconv.SESSION,
        "mlflow.traceTag.session_id": semconv.SESSION,
        "mlflow.trace.user": semconv.USER,
        "mlflow.traceTag.user_id": semconv.USER,
        "mlflow.traceTag.qid": semconv.RAGMON_QID,
    },
    as_json=True,
)
LANGFUSE: Final = Platform(
    type="langfuse.observation.type",
    given="langfuse.observation.input",
    returned="langfuse.observation.output",
    model="langfuse.observation.model.name",
    workflow="langfuse.trace.name",
    kinds=_KINDS,
    others={
        "langfuse.session.id": semconv.SESSION,
        "langfuse.user.id": semconv.USER,
        "langfuse.trace.metadata.qid": semconv.RAGMON_QID,
    },
    as_json=False,
)
PLATFORMS: Final = (MLFLOW, LANGFUSE)
KEYS: Final = frozenset(
    key
    for platform in PLATFORMS
    for key in (*platform[:5], *platform.others)  # the keys are the first five fields
)
"""The keys of the attributes that are read."""


def translate(span: Span) -> dict[str, Any] | None:
    """The attributes of a span of MLflow or Langfuse in OpenInference's words; None where it is none."""
    attributes = span.attributes
    platform = next((platform for platform in PLATFORMS if platform.type in attributes), None)
    if platform is None:
        return None

    def value(key: str) -> Any:
        raw = attributes.get(key)
        decoded = decode(raw) if platform.as_json else None
        return decoded if isinstance(decoded, str) else raw

    kind = platform.kinds.get((as_text(value(platform.type)) or "").casefold())
    given, returned = value(platform.given), value(platform.returned)
    result = {semconv.SPAN_KIND: kind, semconv.WORKFLOW_NAME: value(platform.workflow)}
    if kind == semconv.LLM:
        result |= _model_call(given, returned)
    elif kind is not None or span.parent_id is None:
        # A span without a kind that holds the request, as a decorated function, is the workflow.
        result |= {
            semconv.SPAN_KIND: kind or semconv.CHAIN,
            semconv.INPUT_VALUE: given,
            semconv.OUTPUT_VALUE: returned,
        }
    result[semconv.LLM_MODEL] = value(platform.model)
    result |= {meaning: value(key) for key, meaning in platform.others.items() if key in attributes}
    return {key: value for key, value in result.items() if value is not None}


def _model_call(given: Any, returned: Any) -> dict[str, Any]:
    """Messages in, a text or a message out; integrations write requests and replies of a model's API as they are."""
    asked, replied = decode_container(given), decode_container(returned)
    if isinstance(asked, Mapping):
        asked = asked.get("messages", asked.get("input", asked))
    if isinstance(asked, str):
        asked = [{"role": "user", "content": asked}]
    return {
        semconv.INPUT_MESSAGES: asked if isinstance(asked, list) else None,
        semconv.OUTPUT_MESSAGES: list(_replies(replied)) or None,
        semconv.OUTPUT_VALUE: returned,
    }


def _replies(replied: Any) -> Iterable[Any]:
    """The messages of OpenAI's reply, `{"choices": [{"message": …}]}`, or of a list of them."""
    if not isinstance(replied, Mapping):
        return replied if isinstance(replied, list) else ()
    choices = replied.get("choices")
    entries = choices if isinstance(choices, list) else ()
    return [entry["message"] for entry in entries if isinstance(entry, Mapping) and "message" in entry]
