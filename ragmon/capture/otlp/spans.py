"""A record as spans: an `invoke_workflow` root that holds the whole record, and its stages as children."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import Any, Final

import msgspec
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from ragmon.capture.otlp.wire import nanoseconds, new_span_id, new_trace_id, put, span_id, trace_id
from ragmon.core import constants, semconv
from ragmon.core.record import Latency, Record, encode

GENERATE: Final = "generate"
_MILLISECONDS: Final = 1000


@dataclass(frozen=True)
class SpanWriter:
    """Writes records into a request.

    The root carries the record as one JSON attribute: it is complete alone, no limit on the number of attributes can
    take a document off it, and one attribute costs a tenth of forty. Scalars that backends filter by stand beside it.

    Args:
        conventions: Add OpenTelemetry's and OpenInference's attributes, so that other backends show questions and
            answers where the record has them.
        stages: Add child spans for retrieval and generation.
    """

    conventions: bool = True
    stages: bool = False

    def write(self, spans: Any, record: Record, root_id: str | None = None) -> int:
        """Add a record's spans to a request; a record that cannot be written leaves nothing behind.

        Args:
            spans: The request's repeated field.
            record: What is written.
            root_id: The root's span id, 16 hex digits; None for one of its own.

        Returns:
            About how many bytes it took.

        Raises:
            Exception: A field cannot be written: a lone surrogate, a number that is none.
        """
        line = encode(record)[:-1].decode()
        before = len(spans)
        try:
            self._root(spans, record, line, span_id(root_id) or new_span_id())
            if self.stages:
                self._children(spans, spans[before], record)
        except BaseException:
            del spans[before:]
            raise
        return len(line)

    def _root(self, spans: Any, record: Record, line: str, own_id: bytes) -> None:
        pipeline = record.pipeline or constants.DEFAULT_PIPELINE
        latency = record.latency_ms or Latency()
        end = time() if record.ts is None else record.ts
        root = spans.add(
            trace_id=trace_id(record.trace_id) or new_trace_id(),
            span_id=own_id,
            parent_span_id=span_id(record.parent_span_id) or b"",
            name=f"{semconv.INVOKE_WORKFLOW} {pipeline}",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=nanoseconds(max(0.0, end - (latency.total or 0.0) / _MILLISECONDS)),
            end_time_unix_nano=nanoseconds(end),
        )
        held = root.attributes
        put(held, semconv.RAGMON_CONTRACT_VERSION, str(constants.CONTRACT_VERSION))
        put(held, semconv.RAGMON_RECORD, line)
        put(held, semconv.RAGMON_OK, not record.error)
        put(held, semconv.RAGMON_PROBABILITY, 1.0 if record.sampling is None else record.sampling.p)
        if record.qid is not None:
            put(held, semconv.RAGMON_QID, record.qid)
        if record.error:
            root.status.code = Status.STATUS_CODE_ERROR
            put(held, semconv.ERROR_TYPE, record.error)
        if self.conventions:
            put(held, semconv.OPERATION, semconv.INVOKE_WORKFLOW)
            put(held, semconv.WORKFLOW_NAME, pipeline)
            _text(held, record)

    def _children(self, spans: Any, root: Any, record: Record) -> None:
        """The stages; a record says how long they took, not when, so retrieval stands first and generation last."""
        latency = record.latency_ms or Latency()
        if record.retrieved_ids is not None or latency.retrieve is not None:
            child = _child(spans, root, semconv.RETRIEVAL, Span.SPAN_KIND_CLIENT)
            length = nanoseconds((latency.retrieve or 0.0) / _MILLISECONDS)
            child.end_time_unix_nano = min(root.start_time_unix_nano + length, root.end_time_unix_nano)
            if self.conventions:
                _retrieval(child.attributes, record)
        if latency.generate is not None:
            child = _child(spans, root, GENERATE, Span.SPAN_KIND_INTERNAL)
            length = nanoseconds(latency.generate / _MILLISECONDS)
            child.start_time_unix_nano = max(root.end_time_unix_nano - length, root.start_time_unix_nano)


def _child(spans: Any, root: Any, name: str, kind: Any) -> Any:
    return spans.add(
        trace_id=root.trace_id,
        span_id=new_span_id(),
        parent_span_id=root.span_id,
        name=name,
        kind=kind,
        start_time_unix_nano=root.start_time_unix_nano,
        end_time_unix_nano=root.end_time_unix_nano,
    )


def _text(held: Any, record: Record) -> None:
    """Question and answer, where the record has them."""
    claim = None if record.answer_json is None else record.answer_json.claim
    if record.q is None and claim is None:
        return
    put(held, semconv.SPAN_KIND, semconv.CHAIN)
    if record.q is not None:
        put(held, semconv.INPUT_VALUE, record.q)
        put(held, semconv.INPUT_MESSAGES, _json([_message("user", record.q)]))
    if claim is not None:
        put(held, semconv.OUTPUT_VALUE, claim)
        put(held, semconv.OUTPUT_MESSAGES, _json([{**_message("assistant", claim), "finish_reason": "stop"}]))


def _message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


def _retrieval(held: Any, record: Record) -> None:
    """What was asked and found, the documents as one string: a list of attributes loses its head past 128."""
    put(held, semconv.OPERATION, semconv.RETRIEVAL)
    put(held, semconv.SPAN_KIND, semconv.RETRIEVER)
    if record.q is not None:
        put(held, semconv.QUERY_TEXT, record.q)
    if record.retrieved_ids is None:
        return
    scores, texts = record.scores or [], record.contexts or []
    documents: list[dict[str, Any]] = [{"id": found} for found in record.retrieved_ids]
    for document, score in zip(documents, scores, strict=False):
        document["score"] = score
    for document, text in zip(documents, texts, strict=False):
        document["content"] = text
    put(held, semconv.DOCUMENTS, _json(documents))


def _json(value: list[dict[str, Any]]) -> str:
    return msgspec.json.encode(value).decode()
