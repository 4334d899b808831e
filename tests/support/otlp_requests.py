"""Export requests for tests: spans as OTLP carries them, in both of its encodings."""

from __future__ import annotations

import base64
import json

from google.protobuf.json_format import MessageToDict, ParseDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.capture.otlp_exporter import ProcessResource, metrics_data, record_span
from ragmon.core.text import clean
from ragmon.ingest.spans.span import Event


def of_records(records, resource=None):
    """What ragmon's own exporter sends of records."""
    process = ProcessResource(resource or {})
    return encode_spans([record_span(record, process)[0] for record in records])


def with_ids(request, ids):
    """The bytes of a request whose spans get ids, 16 hex digits each; a span whose id would be zero keeps its own."""
    spans = [span for process in request.resource_spans for scope in process.scope_spans for span in scope.spans]
    for span, found in zip(spans, ids, strict=True):
        span.span_id = bytes.fromhex(found) if found.strip("0") else span.span_id
    return request.SerializeToString()


def of_totals(totals, resource):
    """The bytes that ragmon's own exporter sends of totals."""
    return encode_metrics(metrics_data(totals, resource)).SerializeToString()


UNWANTED = {"thread.id": 7, "code.line.number": 3}


def export(spans, *, scope=None, **resource):
    """A request in protobuf; every span brings attributes that tell nobody anything."""
    request = ExportTraceServiceRequest()
    process = request.resource_spans.add()
    put(process.resource.attributes, resource)
    for span in spans:
        held = process.scope_spans.add()
        held.scope.name = span.scope if scope is None else scope
        add(held.spans, span)
    return request


def add(spans, span):
    """Write a span into a request."""
    told = spans.add(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id or ""),
        trace_state=span.state,
        name=span.name,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        dropped_attributes_count=span.dropped,
        dropped_events_count=span.dropped_events,
        flags=0 if span.sampled is None else 0x100 + span.sampled,
    )
    told.status.code = 2 if span.failed else 0
    put(told.attributes, UNWANTED | dict(span.attributes))
    for event in span.events:
        put(told.events.add(name=event.name).attributes, event.attributes)
    return told


def put(attributes, held):
    for key, value in held.items():
        set_value(attributes.add(key=key).value, value)


def set_value(value, found):
    """Write one value; None and numbers of more than 64 bits stay empty."""
    if isinstance(found, str):
        value.string_value = found
    elif isinstance(found, bool):
        value.bool_value = found
    elif isinstance(found, int):
        value.int_value = found
    elif isinstance(found, float):
        value.double_value = found
    elif isinstance(found, bytes):
        value.bytes_value = found
    elif isinstance(found, dict):
        value.kvlist_value.SetInParent()
        put(value.kvlist_value.values, found)
    elif found is not None:
        value.array_value.SetInParent()
        for one in found:
            set_value(value.array_value.values.add(), one)


def carried(span):
    """A span as OTLP can carry it: text of whole characters, numbers of 64 bits, lists, bytes as base64."""
    events = [Event(event.name, held(event.attributes)) for event in span.events]
    return span._replace(attributes=held(span.attributes), events=events, name=clean(span.name))


def held(found):
    return {clean(str(key)): plain(value) for key, value in found.items()}


def plain(found):
    if isinstance(found, str):
        return clean(found)
    if isinstance(found, int) and not isinstance(found, bool):
        return found if -(2**63) <= found < 2**63 else None
    if isinstance(found, bytes):
        return base64.b64encode(found).decode()
    if isinstance(found, list | tuple):
        return [plain(one) for one in found]
    return held(found) if isinstance(found, dict) else found


def as_json(request):
    """A request with traces or logs in JSON: protobuf's own encoding writes ids in base64, OTLP in hexadecimal."""
    return json.dumps(_with_ids(MessageToDict(request), lambda held: base64.b64decode(held).hex())).encode()


def from_json(body, kind):
    """The request that OTLP's JSON says.

    Args:
        body: The JSON.
        kind: The class of the request.
    """
    found = _with_ids(json.loads(body), lambda held: base64.b64encode(bytes.fromhex(held)).decode())
    return ParseDict(found, kind(), ignore_unknown_fields=True)


def _with_ids(found, encoded):
    for process in (*found.get("resourceSpans", ()), *found.get("resourceLogs", ())):
        for scope in (*process.get("scopeSpans", ()), *process.get("scopeLogs", ())):
            for span in (*scope.get("spans", ()), *scope.get("logRecords", ())):
                for held in (span, *span.get("links", ())):
                    for key in {"traceId", "spanId", "parentSpanId"} & held.keys():
                        held[key] = encoded(held[key])
    return found


def field(number, held):
    """A field of a protocol message that holds bytes."""
    size, length = len(held), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number * 8 + 2, *length, size]) + held
