"""Log records that are events of a model call, in both encodings and all forms in which instrumentations write them."""

from __future__ import annotations

import json

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from ragmon.core import semconv
from ragmon.ingest import otlp
from ragmon.ingest.lines import Rejected
from ragmon.ingest.otlp import read as read_traces
from ragmon.ingest.spans.mapper import to_record
from ragmon.ingest.spans.messages import with_log_events
from ragmon.ingest.spans.span import Event, Span, SpanOptions

TRACE, SPAN, SERVICE = "a1" * 16, "b2" * 8, [{"key": "service.name", "value": {"stringValue": "helpdesk"}}]
CALL = Span(TRACE, SPAN, None, "chat m", 1, 9, {semconv.OPERATION: "chat"}, scope="openai_v2")


def text(value):
    return {"stringValue": value}


def mapping(**members):
    return {"kvlistValue": {"values": [{"key": key, "value": value} for key, value in members.items()]}}


def record(name, body=None, *, at=5, trace=TRACE, span=SPAN, **fields):
    found = {"eventName": name, "timeUnixNano": str(at), "traceId": trace, "spanId": span, **fields}
    return found if body is None else found | {"body": body}


def messages(role, said):
    part = mapping(type=text("text"), content=text(said))
    return {"arrayValue": {"values": [mapping(role=text(role), parts={"arrayValue": {"values": [part]}})]}}


BY_MESSAGE = [
    record("gen_ai.choice", mapping(message=mapping(role=text("assistant"), content=text("It is."))), at=7),
    record("gen_ai.user.message", mapping(content=text("Is it?")), at=6),
    record("gen_ai.system.message", mapping(content=text("Be brief.")), at=5),
]
DETAILS = (
    {"key": "gen_ai.input.messages", "value": messages("user", "Is it?")},
    {
        "key": "gen_ai.output.messages",
        "value": messages("assistant", "It is."),
    },
)
FORMS = {
    "an event a message": BY_MESSAGE,
    "a text as the body": [
        record("gen_ai.user.message", text("Is it?"), at=1),
        record("gen_ai.choice", text("It is."), at=2),
    ],
    "all messages in attributes": [record(semconv.INFERENCE_DETAILS, attributes=list(DETAILS))],
    "all messages in the body": [
        record(semconv.INFERENCE_DETAILS, {"kvlistValue": {"values": list(DETAILS)}}),
    ],
    "the name in an attribute": [
        {**entry, "eventName": "", "attributes": [{"key": "event.name", "value": text(entry["eventName"])}]}
        for entry in BY_MESSAGE
    ],
    "no time but that of the observer": [
        {**entry, "timeUnixNano": "0", "observedTimeUnixNano": entry["timeUnixNano"]} for entry in BY_MESSAGE
    ],
}


def request(*records):
    scope = {"scope": {"name": "openai_v2"}, "logRecords": list(records)}
    return {"resourceLogs": [{"resource": {"attributes": SERVICE}, "scopeLogs": [scope]}]}


def protobuf_value(target, value):
    if "stringValue" in value:
        target.string_value = value["stringValue"]
    elif "doubleValue" in value:
        target.double_value = value["doubleValue"]
    elif "arrayValue" in value:
        for member in value["arrayValue"]["values"]:
            protobuf_value(target.array_value.values.add(), member)
    else:
        for pair in value["kvlistValue"]["values"]:
            protobuf_value(target.kvlist_value.values.add(key=pair["key"]).value, pair["value"])


def encoded(found, as_json):
    if as_json:
        return json.dumps(found).encode()
    message = ExportLogsServiceRequest()
    for resource in found["resourceLogs"]:
        process = message.resource_logs.add()
        protobuf_value(process.resource.attributes.add(key="service.name").value, SERVICE[0]["value"])
        for entry in resource["scopeLogs"][0]["logRecords"]:
            told = (process.scope_logs or [process.scope_logs.add()])[0].log_records.add(
                event_name=entry["eventName"],
                time_unix_nano=int(entry["timeUnixNano"]),
                observed_time_unix_nano=int(entry.get("observedTimeUnixNano", 0)),
                trace_id=bytes.fromhex(entry["traceId"]),
                span_id=bytes.fromhex(entry["spanId"]),
            )
            for pair in entry.get("attributes", ()):
                protobuf_value(told.attributes.add(key=pair["key"]).value, pair["value"])
            if "body" in entry:
                protobuf_value(told.body, entry["body"])
    return message.SerializeToString()


def external(found, *, as_json):
    """The spans that stand for log records, as a server has them."""
    return read_traces(otlp.read_logs(encoded(found, as_json), as_json=as_json).body, json=False).external


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "protobuf"])
@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_question_and_answer_are_those_of_the_events(form, as_json):
    found = external(request(*form), as_json=as_json)
    assert {(span.service, span.is_root) for span in found} == {("helpdesk", False)}
    (call,), missing = with_log_events([*(span.span() for span in found), CALL])
    read = to_record([call]).record
    assert (read.q, read.answer_json.claim, missing) == ("Is it?", "It is.", 0)


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "protobuf"])
def test_a_record_that_is_sent_again_has_the_same_id_and_others_have_others(as_json):
    once, again = (external(request(*BY_MESSAGE), as_json=as_json) for _ in range(2))
    ids = [span.span_id for span in once]
    assert ids == [span.span_id for span in again]
    assert len({*ids, bytes.fromhex(SPAN)}) == 4


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "protobuf"])
def test_what_is_no_message_or_of_no_span_is_counted_as_unread(as_json):
    others = [
        record("exception"),
        record(""),
        record("gen_ai.choice", text("x"), span="0" * 16),
        record("gen_ai.choice", text("x"), trace="0" * 32),
    ]
    assert otlp.read_logs(encoded(request(*others), as_json), as_json=as_json) == (b"", 4)
    assert otlp.read_logs(encoded(request(*others, *BY_MESSAGE), as_json), as_json=as_json).unread == 4


@pytest.mark.parametrize("damaged", [{"eventName": 5}, {"traceId": None}, "text", {"timeUnixNano": "soon"}])
def test_a_malformed_record_in_json_spoils_no_other(damaged):
    body = json.dumps(request(*BY_MESSAGE, damaged)).encode()
    found = otlp.read_logs(body, as_json=True)
    assert (found.unread, len(read_traces(found.body, json=False).external)) == (1, 3)


@pytest.mark.parametrize(("body", "as_json"), [(b"{", True), (b"[]", True), (b"\xff", False)])
def test_a_malformed_request_is_rejected(body, as_json):
    with pytest.raises(Rejected):
        otlp.read_logs(body, as_json=as_json)


def test_the_messages_of_a_span_itself_win():
    said = {**CALL.attributes, semconv.INPUT_MESSAGES: '[{"role": "user", "content": "Mine?"}]'}
    pieces = [span.span() for span in external(request(*BY_MESSAGE), as_json=True)]
    (call,), _ = with_log_events([CALL._replace(attributes=said), *pieces])
    assert to_record([call]).record.q == "Mine?"


def test_events_of_a_span_and_of_its_log_records_stand_together():
    own = Event("exception", {"exception.type": "E"})
    pieces = [span.span() for span in external(request(*BY_MESSAGE), as_json=True)]
    (call,), _ = with_log_events([CALL._replace(events=[own]), *pieces])
    assert [event.name for event in call.events] == [
        "exception",
        "gen_ai.system.message",
        "gen_ai.user.message",
        "gen_ai.choice",
    ]


@pytest.mark.parametrize("as_json", [True, False], ids=["json", "protobuf"])
def test_an_evaluation_as_a_log_event_is_one_of_its_span(as_json):
    """As the conventions have it: parented to the span that is evaluated."""
    held = [
        {"key": semconv.EVALUATION_NAME, "value": text("Relevance")},
        {"key": semconv.EVALUATION_SCORE, "value": {"doubleValue": 4.0}},
        {"key": "gen_ai.evaluation.explanation", "value": text("It fits.")},
    ]
    found = otlp.read_logs(
        encoded(request(*BY_MESSAGE, record(semconv.EVALUATION, attributes=held)), as_json), as_json=as_json
    )
    assert found.unread == 0
    spans, missing = with_log_events([CALL, *(one.span() for one in read_traces(found.body, json=False).external)])
    assert (missing, "It fits." in repr(spans)) == (0, False)
    mapped = to_record(spans, SpanOptions(ranges={"relevance": (1, 5)}))
    assert (mapped.record.q, mapped.record.measures) == ("Is it?", {"judge_relevance": 0.75})
