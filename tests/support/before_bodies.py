"""Random requests to a server's write port, from recorded ones: OTLP in both encodings, labels, acknowledgements."""

from __future__ import annotations

import base64
import copy
import gzip
import json
import random
import zlib
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.before_worker import START
from tests.support.mutated_lines import Mutator

DATA = Path(__file__).parents[1] / "data"
NANO = 1_000_000_000
TIMES = ("startTimeUnixNano", "endTimeUnixNano", "timeUnixNano")
IDS = ("traceId", "spanId", "parentSpanId")
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    2**63,
    "",
    "x",
    "0",
    "é\u0000",
    "x" * 5000,
    [],
    {},
    [[]],
    [None],
    {"a": 1},
)
"""In place of anything."""
TEXTS = (
    "What is it?",
    "not in context",
    "42",
    "{}",
    '{"a"',
    "[1]",
    "null",
    "Ω 日本",
    '{"documents": [{"id": "d1"}]}',
    "d1",
)
"""In place of a text."""
ADMIN_PATHS = (
    *(
        "/api/status",
        "/metrics",
        "/readyz",
        "/api/records?gate=mrr",
        "/api/why?gate=error_rate",
        "/api/records?limit=5",
    ),
    *("/api/compare?pipeline=support&by=build&baseline=b1&candidate=b2", "/api/traces/" + "5a" * 16, "/api/nothing"),
)


@cache
def recorded() -> tuple[dict[str, Any], ...]:
    """Requests as real instrumentations and agents sent them, in OTLP's JSON."""
    found = []
    for path in sorted((DATA / "wire" / "agents").glob("*.jsonl.gz")):
        asked = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()][1:]
        found += [request for question in asked for request in question["requests"]]
    for path in sorted((DATA / "wire" / "instrumentations").glob("*.json")):
        found.append(_export([_of_tuple(span) for span in json.loads(path.read_bytes())["spans"]]))
    for path in sorted((DATA / "spans").glob("*.json")):
        found.append(_export([_of_sdk(span) for span in json.loads(path.read_bytes())]))
    return tuple(found)


def _export(spans: list[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    scopes = [{"scope": {"name": scope}, "spans": [span]} for scope, span in spans]
    return {
        "resourceSpans": [{"resource": {"attributes": _attributes({"service.name": "shop"})}, "scopeSpans": scopes}]
    }


def _of_tuple(told: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    events = [{"name": event[0], "attributes": _attributes(event[1])} for event in told["events"]]
    return told["scope"], {
        "traceId": told["trace_id"],
        "spanId": told["span_id"],
        "parentSpanId": told["parent_id"] or "",
        "name": told["name"],
        "startTimeUnixNano": str(told["start_ns"]),
        "endTimeUnixNano": str(told["end_ns"]),
        "attributes": _attributes(told["attributes"]),
        "events": events,
        "status": {"code": 2 if told["failed"] else 0},
    }


def _of_sdk(told: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return told["instrumentation_scope"], {
        "traceId": told["context"]["trace_id"].removeprefix("0x"),
        "spanId": told["context"]["span_id"].removeprefix("0x"),
        "parentSpanId": (told["parent_id"] or "").removeprefix("0x"),
        "name": told["name"],
        "startTimeUnixNano": str(round(datetime.fromisoformat(told["start_time"]).timestamp() * 1e6) * 1000),
        "endTimeUnixNano": str(round(datetime.fromisoformat(told["end_time"]).timestamp() * 1e6) * 1000),
        "attributes": _attributes(told["attributes"]),
        "events": [{"name": one["name"], "attributes": _attributes(one["attributes"])} for one in told["events"]],
        "status": {"code": 2 if told["status"]["status_code"] == "ERROR" else 0},
    }


def _attributes(held: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _value(value)} for key, value in held.items()]


def _value(found: Any) -> dict[str, Any]:
    if isinstance(found, bool):
        return {"boolValue": found}
    if isinstance(found, int):
        return {"intValue": str(found)}
    if isinstance(found, float):
        return {"doubleValue": found}
    if isinstance(found, list):
        return {"arrayValue": {"values": [_value(one) for one in found]}}
    return {"kvlistValue": {"values": _attributes(found)}} if isinstance(found, dict) else {"stringValue": str(found)}


def own(rng: random.Random) -> dict[str, Any]:
    """Records as ragmon's own capture sends them."""
    made, rows = Mutator(rng.getrandbits(32)), []
    for _ in range(rng.randint(1, 5)):
        row = {name: value for name, value in made.record() if value is not None} | {"v": 1}
        row["ts"] = START - rng.choice((0, 1, 30, 400, 4000, 90_000))
        row["trace_id"] = rng.choice(("5a" * 16, f"{rng.getrandbits(127) + 1:032x}"))
        rows.append(row)
    return own_records(rows)


def own_records(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Lines of a trace log as a request of ragmon's capture."""
    spans = []
    for place, row in enumerate(rows, start=1):
        line = json.dumps(row, ensure_ascii=False)
        held = {"ragmon.contract.version": "1", "ragmon.record": line, "gen_ai.operation.name": "invoke_workflow"}
        end = round(row["ts"])
        times = {"startTimeUnixNano": str((end - 1) * NANO), "endTimeUnixNano": str(end * NANO)}
        ids = {"traceId": row["trace_id"], "spanId": f"{end % 2**31:08x}{place:08x}"}
        spans.append(("ragmon", {**ids, "name": "invoke_workflow", **times, "attributes": _attributes(held)}))
    return _export(spans)


def trace_body(rng: random.Random) -> dict[str, Any]:
    """A request with traces, of a time shortly before `START` and with ids of its own; most are changed."""
    body = own(rng) if rng.random() < 0.25 else copy.deepcopy(rng.choice(recorded()))
    late = max(int(span["endTimeUnixNano"]) for span in _spans(body))
    earlier = late - round((START - rng.choice((1, 5, 60, 600))) * NANO)
    prefix = f"{rng.getrandbits(31) + 1:08x}"
    for span in _spans(body):
        span.update({name: str(int(span[name]) - earlier) for name in TIMES if name in span})
        if span["traceId"] != "5a" * 16:
            span["traceId"] = prefix + span["traceId"][8:]
    for _ in range(rng.choice((0, 1, 1, 2, 4, 8))):
        change_attributes(rng, rng.choice([span["attributes"] for span in _spans(body)]))
    if rng.random() < 0.2:
        change(rng, body)
    return body


def _spans(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        span for process in body["resourceSpans"] for scope in process["scopeSpans"] for span in scope.get("spans", ())
    ]


def places(found: Any) -> list[tuple[Any, Any]]:
    """Everything that a JSON document holds, as its container and its key there."""
    keys = list(found) if isinstance(found, dict) else range(len(found)) if isinstance(found, list) else ()
    return [place for key in keys for place in ((found, key), *places(found[key]))]


def change(rng: random.Random, body: Any) -> None:
    """One accident somewhere in a JSON document; texts that are JSON have accidents of their own."""
    holder, key = rng.choice(places(body) or [({}, "")])
    if not holder:
        return
    found, chance = holder[key], rng.random()
    if isinstance(found, str) and found[:1] in ("{", "[") and chance < 0.5:
        try:
            inside = json.loads(found)
        except ValueError:
            inside = [found]
        change(rng, inside)
        holder[key] = json.dumps(inside)
    elif chance < 0.25:
        del holder[key]
    elif chance < 0.5 and isinstance(found, str):
        holder[key] = rng.choice((rng.choice(TEXTS), found[: len(found) // 2], found.upper(), found * 2))
    elif chance < 0.7 and isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(found))
    elif chance < 0.8 and isinstance(holder, list):
        rng.shuffle(holder)
    else:
        holder[key] = copy.deepcopy(rng.choice((*ODD, rng.choice(places(body))[1])))


def change_attributes(rng: random.Random, attributes: list[dict[str, Any]]) -> None:
    """One accident among the attributes of a span, which still are attributes."""
    if not attributes:
        return
    one = rng.choice(attributes)
    text = one["value"].get("stringValue")
    match rng.randrange(6):
        case 0:
            attributes.remove(one)
        case 1:
            attributes.insert(rng.randrange(len(attributes)), copy.deepcopy(rng.choice(attributes)))
        case 2:
            one["key"] = rng.choice((rng.choice(attributes)["key"], one["key"] + "x", one["key"].rpartition(".")[0]))
        case 3:
            one["value"] = _value(rng.choice((True, 7, 0.5, [one["key"], "d1"], {"id": "d1"}, *TEXTS)))
        case _ if text is not None:
            held = {"held": text}
            change(rng, held)
            one["value"] = _value(held.get("held", ""))


def protobuf(body: dict[str, Any], kind: type) -> bytes:
    """A request of OTLP's JSON in protobuf; as JSON, where it is none."""
    body = copy.deepcopy(body)
    try:
        for span in (holder for holder, key in places(body) if key == "traceId"):
            span.update({name: base64.b64encode(bytes.fromhex(span[name])).decode() for name in IDS if name in span})
        message: bytes = ParseDict(body, kind(), ignore_unknown_fields=True).SerializeToString()
    except (ParseError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return json.dumps(body).encode()
    return message


def damaged(rng: random.Random, body: bytes) -> bytes:
    """Bytes after an accident."""
    at, other = rng.randrange(len(body) + 1), rng.randrange(len(body) + 1)
    kinds = (
        body[:at],
        body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :],
        body[:at] + body[other : other + 50] + body[at:],
        body[:at] + body[at + rng.randrange(1, 20) :],
        body[:at]
        + rng.choice((b"\xff" * 10, b"\x0b", b"\x00", b"\xc3\x28", b"\x0a" + b"\xff" * 9 + b"\x01"))
        + body[at:],
    )
    return rng.choice(kinds)


def totals(rng: random.Random) -> dict[str, Any]:
    """What a producer says of all its calls."""
    begun = START - rng.choice((60, 3600, 90_000))
    points = []
    for outcome in ("kept", "unkept"):
        names = {"pipeline": rng.choice(("support", "sales", "é")), "source": "live", "stratum": "rest"}
        held = _attributes(names | {"outcome": outcome})
        times = {"startTimeUnixNano": str(round(begun * NANO)), "timeUnixNano": str(round((START - 1) * NANO))}
        points.append({"attributes": held, **times, "asInt": str(rng.randint(0, 500))})
    held = {"dataPoints": points, "aggregationTemporality": 2, "isMonotonic": True}
    process = {"attributes": _attributes({"service.instance.id": rng.choice(("web-1", "web-2"))})}
    scope = {"scope": {"name": "ragmon"}, "metrics": [{"name": "rag.requests", "unit": "{request}", "sum": held}]}
    return {"resourceMetrics": [{"resource": process, "scopeMetrics": [scope]}]}


def logs(rng: random.Random) -> dict[str, Any]:
    """Messages of a model's calls as log records."""
    held = {"gen_ai.system": "openai", "event.name": rng.choice(("gen_ai.user.message", "gen_ai.choice", "other"))}
    entry = {"timeUnixNano": str(round(START * NANO)), "traceId": "5a" * 16, "spanId": "01" * 8}
    entry |= {"body": _value({"content": rng.choice(TEXTS)}), "attributes": _attributes(held)}
    return {"resourceLogs": [{"scopeLogs": [{"scope": {"name": "openai"}, "logRecords": [entry]}]}]}


def label(rng: random.Random) -> Any:
    """What a person says of an answer."""
    made = {"trace_id": rng.choice(("5a" * 16, "0" * 32, "x")), "rater": rng.choice(("ada", "bob", "")), "ts": START}
    made |= rng.choice(({"correct": True}, {"correct": 0.5}, {"answerable": False}, {"relevant_ids": ["d1"]}, {}))
    return rng.choice((made, [made, {**made, "rater": "carl"}]))


def request(rng: random.Random, questions: tuple[str, ...]) -> dict[str, Any]:
    """One request to the write port, as a step of `before_worker` takes it."""
    path, body, kind = rng.choice(
        (
            *[("/v1/traces", trace_body(rng), ExportTraceServiceRequest)] * 6,
            ("/v1/metrics", totals(rng), ExportMetricsServiceRequest),
            ("/v1/logs", logs(rng), ExportLogsServiceRequest),
            ("/v1/labels", label(rng), None),
            (
                "/v1/ack",
                {"gate": "mrr", "pipeline": rng.choice(("support", "x")), "reason": rng.choice(questions)},
                None,
            ),
        )
    )
    if kind is not ExportTraceServiceRequest and rng.random() < 0.5:
        change(rng, body)
    media, data = "application/json", json.dumps(body).encode()
    if kind is not None and rng.random() < 0.5:
        data = protobuf(body, kind)
        media = "application/json" if data[:1] == b"{" else "application/x-protobuf"
    if rng.random() < 0.2:
        data = damaged(rng, data)
    headers = {"Content-Type": media}
    if rng.random() < 0.15:
        data, headers["Content-Encoding"] = rng.choice(
            ((gzip.compress(data, mtime=0), "gzip"), (zlib.compress(data), "deflate"), (data, "gzip"), (data, "br"))
        )
    if rng.random() < 0.05:
        headers |= rng.choice(({"Content-Type": "text/plain"}, {"Origin": "http://x"}, {"Host": "evil.example"}))
    method = "POST" if rng.random() < 0.97 else rng.choice(("GET", "PUT", "DELETE"))
    path = path if rng.random() < 0.97 else rng.choice(("/", "/v1/other", "/v1/traces/", "/api/status"))
    sent = {"method": method, "path": path, "headers": headers, "body": base64.b64encode(data).decode()}
    return {"port": "otlp", **sent}
