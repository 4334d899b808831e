"""Records sent over OTLP: what arrives, what is lost and why, and how long anything may take."""

from __future__ import annotations

import socket
import threading
from contextlib import ExitStack
from time import monotonic

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ragmon.capture.otlp_exporter import REQUEST_SIZE, OtlpExporter, OtlpSession
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record, Totals
from ragmon.testing import make_record
from tests.support.otlp_receiver import PROTOBUF, Answer, receiving

RESOURCE = {"service.name": "shop", "service.instance.id": "i-1"}
LATE = 30.0
"""Seconds after which something surely did not happen at once, or at its deadline; machines are slow."""


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


@pytest.fixture
def sink_to():
    """Makes sinks that are closed when the test ends."""
    with ExitStack() as stack:

        def make(server, **told):
            endpoint = server if isinstance(server, str) else server.endpoint
            session = OtlpSession(endpoint, **{"timeout": 2 * LATE, **told})
            sink = OtlpExporter(session, resource=RESOURCE)
            stack.callback(sink.close)
            return sink

        yield make


def records(n):
    return [make_record(f"q{number}", trace_id=f"{number + 1:032x}", ts=1.7e9 + number) for number in range(n)]


def took(run):
    started = monotonic()
    outcome = run()
    return monotonic() - started, outcome


def test_a_batch_arrives_whole_in_order_and_says_who_sent_it(receiver, sink_to):
    sent = records(300)
    assert sink_to(receiver).deliver(sent) == {}
    assert receiver.records() == sent
    (request,) = receiver.requests
    assert request.headers["Content-Type"] == PROTOBUF
    (envelope,) = request.message.resource_spans
    assert {held.key: held.value.string_value for held in envelope.resource.attributes} == RESOURCE
    assert envelope.scope_spans[0].scope.name == "ragmon"


def test_a_text_is_not_read_as_a_partial_success(receiver, sink_to):
    refusing = ExportTraceServiceResponse()
    refusing.partial_success.rejected_spans = 2
    receiver.answers.append(Answer(body=refusing.SerializeToString(), headers={"Content-Type": "text/plain"}))
    assert sink_to(receiver).deliver(records(3)) == {}


def test_nothing_is_sent_where_there_is_nothing_to_send(receiver, sink_to):
    assert sink_to(receiver).deliver([]) == {}
    assert receiver.requests == []


def test_one_connection_serves_many_batches_and_a_closed_one_is_replaced_without_waiting(receiver, sink_to):
    sink = sink_to(receiver)
    for record in records(3):
        assert sink.deliver([record]) == {}
    assert receiver.connections == 1
    receiver.answers.append(Answer(headers={"Connection": "close"}))
    sink.deliver(records(1))
    assert sink.deliver(records(1)) == {}
    assert receiver.connections == 2


def test_a_connection_the_receiver_dropped_while_it_was_idle_costs_no_record(receiver, sink_to):
    sink = sink_to(receiver)
    sink.deliver(records(1))
    receiver.answers.append(Answer(vanish=True))
    seconds, lost = took(lambda: sink.deliver(records(2)))
    assert lost == {}
    assert seconds < LATE
    # It had been read before it was dropped: delivery is at least once, and the second copy is the same spans.
    first, second = receiver.requests[1:]
    assert first.message == second.message
    receiver.answers.append(Answer(vanish=True))
    assert sink.report([totals()]) is True  # what is sent once only is not lost to it either


def test_a_large_batch_goes_in_several_requests(receiver, sink_to):
    sent = [make_record("q", contexts=["x" * REQUEST_SIZE], trace_id=f"{n:032x}") for n in (1, 2, 3)]
    assert sink_to(receiver).deliver([*sent, make_record("small")]) == {}
    assert receiver.records() == [*sent, make_record("small")]
    assert len(receiver.requests) == 4


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "export_refused"),
        (401, "export_refused"),
        (301, "export_refused"),
        (413, "export_refused"),
        (500, "export_failed"),
    ],
)
def test_a_refusal_for_good_is_counted_and_not_asked_again(receiver, sink_to, status, reason):
    receiver.answers.append(Answer(status, {"Location": receiver.endpoint}))
    assert sink_to(receiver).deliver(records(7)) == {reason: 7}
    assert len(receiver.requests) == 1


def test_what_a_partial_success_refuses_is_counted_exactly(receiver, sink_to):
    receiver.answers.append(Answer(rejected=3))
    sink = sink_to(receiver)
    assert sink.deliver(records(7)) == {"export_refused": 3}
    assert sink.deliver(records(7)) == {}


@pytest.mark.parametrize("rejected", [-5, 10**12])
def test_a_receiver_that_cannot_count_does_not_break_the_books(receiver, sink_to, rejected):
    receiver.answers.append(Answer(rejected=rejected))
    assert sink_to(receiver).deliver(records(4)) == ({"export_refused": 4} if rejected > 0 else {})


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b"OK", headers={"Content-Type": "text/plain"}),
        Answer(body=b"\xff\xff"),
        Answer(body=b""),
        Answer(body=b"x" * 200_000),
    ],
)
def test_an_acceptance_in_whatever_words_is_one(receiver, sink_to, answer):
    """Also where more is said than is read."""
    receiver.answers.append(answer)
    sink = sink_to(receiver)
    assert sink.deliver(records(2)) == {}
    assert sink.deliver(records(2)) == {}
    assert len(receiver.requests) == 2


@pytest.mark.slow
@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_receiver_that_is_not_ready_is_asked_again(receiver, sink_to, status):
    receiver.answers.extend([Answer(status), Answer(status)])
    assert sink_to(receiver).deliver(records(2)) == {}
    assert len(receiver.requests) == 3
    assert receiver.requests[0].message == receiver.requests[2].message


@pytest.mark.slow
def test_a_receiver_that_says_when_to_come_back_is_left_alone_until_then(receiver, sink_to):
    receiver.answers.append(Answer(503, {"Retry-After": "1"}))
    seconds, lost = took(lambda: sink_to(receiver).deliver(records(2)))
    assert lost == {}
    assert 1 <= seconds < LATE


@pytest.mark.parametrize("later", ["3600", "Fri, 31 Dec 2999 23:59:59 GMT"])
def test_a_receiver_that_wants_longer_than_there_is_costs_no_time(receiver, sink_to, later):
    receiver.answers.append(Answer(429, {"Retry-After": later}))
    seconds, lost = took(lambda: sink_to(receiver).deliver(records(2)))
    assert lost == {"export_failed": 2}
    assert seconds < LATE


@pytest.mark.parametrize("later", ["soon", "nan", "-1", "Mon, 01 Jan 1990 00:00:00 GMT"])
def test_a_time_to_come_back_that_is_none_does_not_hinder(receiver, sink_to, later):
    receiver.answers.append(Answer(429, {"Retry-After": later}))
    assert sink_to(receiver).deliver(records(2)) == {}


@pytest.mark.parametrize("answer", [Answer(hang=True), Answer(drip=True)])
def test_a_receiver_that_hangs_or_dribbles_costs_the_timeout_and_no_more(receiver, sink_to, answer):
    """A byte now and then must not start the time anew."""
    receiver.answers.append(answer)
    sink = sink_to(receiver, timeout=0.3)
    seconds, lost = took(lambda: sink.deliver(records(5)))
    assert lost == {"export_timeout": 5}
    assert 0.3 <= seconds < LATE
    assert sink.deliver(records(5)) == {}


@pytest.fixture
def deaf():
    """A server whose connections are taken by the system, and read by nobody."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def test_a_receiver_that_never_reads_costs_the_timeout(sink_to, deaf):
    sink = sink_to(f"http://127.0.0.1:{deaf}", timeout=0.3)
    large = [make_record("q", contexts=["x" * 8_000_000]) for _ in range(3)]
    seconds, lost = took(lambda: sink.deliver(large))
    assert lost == {"export_timeout": 3}
    assert seconds < LATE


def unused_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def test_a_receiver_that_is_away_takes_no_more_than_the_time_that_there_is(sink_to):
    sink = sink_to(f"http://127.0.0.1:{unused_port()}", timeout=0.5)
    seconds, lost = took(lambda: sink.deliver(records(3)))
    assert lost == {"export_failed": 3}
    assert seconds < LATE


def test_a_receiver_that_comes_up_in_time_gets_the_batch(sink_to):
    """Its port is taken first and answered on later."""
    port = unused_port()
    sink = sink_to(f"http://127.0.0.1:{port}", timeout=2 * LATE)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(sink.deliver(records(2))))
    thread.start()
    with receiving(port=port) as server:
        thread.join()
        assert outcome == [{}]
        assert server.records() == records(2)


def test_a_name_that_leads_nowhere_is_a_loss_and_no_error(sink_to):
    sink = sink_to("http://nowhere.invalid:4318", timeout=0.3)
    assert set(sink.deliver(records(2))) <= {"export_failed", "export_timeout"}


def test_something_else_that_listens_there_is_a_loss_and_no_error(sink_to):
    """A gRPC port answers in a protocol of its own."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        stop = threading.Event()
        server.settimeout(0.05)

        def talk():
            while not stop.is_set():
                try:
                    taken, _ = server.accept()
                except TimeoutError:
                    continue
                with taken:
                    taken.sendall(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x7f\xff\xff\xff\x00\x04\n")

        thread = threading.Thread(target=talk)
        thread.start()
        sink = sink_to(f"http://127.0.0.1:{server.getsockname()[1]}", timeout=0.4)
        lost = sink.deliver(records(2))  # the last attempt may find no time for an answer
        assert lost in ({"export_failed": 2}, {"export_timeout": 2})
        stop.set()
        thread.join()


def test_closing_ends_a_request_that_hangs(receiver, sink_to):
    receiver.answers.append(Answer(hang=True))
    sink = sink_to(receiver, timeout=2 * LATE)
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(sink.deliver(records(2))))
    thread.start()
    receiver.wait_for(lambda: receiver.requests)
    seconds, _ = took(lambda: (sink.close(), thread.join()))
    assert outcome == [{"export_failed": 2}]
    assert seconds < LATE
    assert sink.deliver(records(1)) == {"export_failed": 1}
    assert sink.report([totals()]) is False
    assert len(receiver.requests) == 1


def test_closing_ends_a_wait_for_the_next_try(receiver, sink_to):
    receiver.answers.append(Answer(503, {"Retry-After": str(int(LATE) + 10)}))
    sink = sink_to(receiver, timeout=2 * LATE)
    thread = threading.Thread(target=lambda: sink.deliver(records(2)))
    thread.start()
    receiver.wait_for(lambda: receiver.requests)
    seconds, _ = took(lambda: (sink.close(), thread.join()))
    assert seconds < LATE


def test_a_record_that_cannot_be_written_costs_no_other_one(receiver, sink_to):
    broken = [Record(q="\ud800"), Record(ts=float("nan"))]
    assert sink_to(receiver).deliver([*records(1), *broken, *records(2)]) == {"invalid_schema": 2}
    assert receiver.records() == [*records(1), *records(2)]


def test_the_token_travels_in_the_header_and_stands_in_no_message(receiver, sink_to):
    sink_to(receiver, token="s3cret\n").deliver(records(1))
    assert receiver.requests[0].headers["Authorization"] == "Bearer s3cret"
    for token in ("", " ", "zwölf", "two words", "a\r\nX-Evil: 1"):
        with pytest.raises(RagmonError, match="token") as caught:
            sink_to(receiver, token=token)
        assert caught.value.hint
        assert not token.strip() or token not in f"{caught.value}{caught.value.hint}"
    assert "s3cret" not in repr(vars(sink_to(receiver, token="s3cret")))


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "127.0.0.1:4318",
        "ftp://host",
        "http://",
        "http://host:port",
        "http://host:99999",
        "http://a..b",
        "http://host/a b",
        "http://host?x=1",
        "http://user:hunter2@host",
    ],
)
def test_an_endpoint_that_is_no_address_is_refused_at_once(sink_to, endpoint):
    with pytest.raises(RagmonError, match="endpoint") as caught:
        sink_to(endpoint)
    assert "http://" in caught.value.hint
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("tail", ["", "/", "/v1/traces"])
def test_the_endpoint_may_be_written_with_or_without_what_follows_from_it(receiver, sink_to, tail):
    for base in ("", "/deep/in"):
        sink = sink_to(receiver.endpoint + base + tail)
        assert sink.deliver(records(1)) == {}
        assert receiver.requests[-1].path == f"{base}/v1/traces"


def totals(**fields):
    return Totals(
        **{"ts": 2.0, "instance": "i-1", "started": 1.0, "pipeline": "p", "source": "live", "calls": 1, **fields}
    )


def test_totals_are_sent_once_and_a_refusal_is_told(receiver, sink_to):
    """They are cumulative: the next report says all that this one said."""
    sink = sink_to(receiver)
    assert sink.report([totals()]) is True
    receiver.answers.extend([Answer(503), Answer(rejected=1), Answer(400)])
    assert [sink.report([totals()]) for _ in range(4)] == [False, False, False, True]
    assert len(receiver.requests) == 5


def test_totals_that_are_none_are_told_and_not_raised(receiver, sink_to):
    assert sink_to(receiver).report([totals(calls="many")]) is False
    assert sink_to(receiver).report([totals(latency_ms={10**30: 1})]) is False
    assert receiver.requests == []
