"""An address as the target of probes: what it is sent, and what its replies mean, the strange ones too."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from email.utils import formatdate
from time import time

import pytest

from ragmon.capture.call import is_proved
from ragmon.core.errors import RagmonError
from ragmon.server.probe_client import HttpTarget
from tests.support.fake_consumer import certificate
from tests.support.probed import QUESTION, REFUSED, ask, web
from tests.support.waiting import TIMEOUT

ANSWER = {"answer": "At nine.", "citations": ["d1"], "sources": [{"id": "d1", "text": "It leaves at nine."}]}


def replied(told, **keys):
    """What becomes of a question that is answered so, and the request."""
    with web(lambda _: told) as there:
        return ask(there.url, **keys), there.asked


class TestRequest:
    def test_the_question_stands_in_the_body_as_json_wants_it(self):
        _, (asked,) = replied(ANSWER)
        assert (asked.path, asked.question) == ("/ask", QUESTION.text)
        assert asked.headers["content-type"] == "application/json"

    def test_body_and_headers_are_the_configured_ones(self):
        _, (asked,) = replied(ANSWER, body='{"a": [{"q": "{question}"}]}', headers={"Authorization": "Bearer x"})
        assert b'{"a": [{"q": "Say' in asked.body
        assert asked.headers["authorization"] == "Bearer x"

    def test_it_is_marked_and_wants_no_cached_answer(self):
        found, (asked,) = replied(ANSWER)
        assert asked.headers["cache-control"] == "no-cache"
        assert asked.headers["baggage"] == "ragmon.qid=q1,ragmon.probe=support"
        version, trace_id, span_id, flags = asked.headers["traceparent"].split("-")
        assert (version, trace_id, len(span_id), flags) == ("00", found.record.trace_id, 16, "01")

    def test_with_a_key_it_proves_what_it_is(self):
        found, (asked,) = replied(ANSWER, key=b"secret")
        token = asked.headers["baggage"].partition("ragmon.token=")[2]
        assert is_proved(b"secret", int(found.record.trace_id, 16), "q1", token)
        assert not is_proved(b"other", int(found.record.trace_id, 16), "q1", token)

    def test_baggage_of_the_configuration_stands_before_ours(self):
        _, (asked,) = replied(ANSWER, headers={"Baggage": "tenant=7"})
        assert asked.headers["baggage"].startswith("tenant=7,ragmon.qid=q1,")

    def test_no_proxy_of_the_environment_plays_a_part(self, monkeypatch):
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        assert replied(ANSWER)[0].result == "ok"


class TestAnswer:
    def test_known_shapes_are_read(self):
        record = replied(ANSWER)[0].record
        assert (record.source, record.qid, record.pipeline, record.q) == ("probe", "q1", "support", QUESTION.text)
        assert (record.answer_json.claim, record.answer_json.citations) == ("At nine.", ["d1"])
        assert record.latency_ms.total is not None
        assert (record.sampling.p, record.sampling.stratum, record.error) == (1.0, "rest", None)

    def test_configured_paths_are_followed(self):
        told = {"result": {"text": "At nine."}, "hits": ["d1", "d2"], "version": "7"}
        paths = {"claim": "result.text", "retrieved": "hits", "build": "version"}
        record = replied(told, answer=paths)[0].record
        assert (record.answer_json.claim, record.retrieved_ids, record.build) == ("At nine.", ["d1", "d2"], "7")

    def test_a_refusal_is_of_its_stratum(self):
        assert replied(REFUSED)[0].record.sampling.stratum == "refusal"

    def test_plain_text_is_the_claim(self):
        plain = {"Content-Type": "text/plain; charset=latin-1"}
        assert replied((200, plain, "Fünf".encode("latin-1")))[0].record.answer_json.claim == "Fünf"


class TestNoAnswer:
    @pytest.mark.parametrize(
        "told",
        [
            (200, {"Content-Type": "text/html"}, b"<html>please log in</html>"),
            (200, {}, b"\xff\xfe garbage"),
            (200, {"Content-Type": "application/json"}, b"{"),
            (200, {"Content-Type": "application/json"}, b"[" * 100_000),
        ],
        ids=["a page", "no text", "half", "too deep"],
    )
    def test_what_is_no_answer_is_an_error(self, told):
        found = replied(told)[0]
        assert (found.result, found.record.error, found.record.answer_json) == ("error", "UnreadableReplyError", None)

    def test_a_reply_without_end_is_not_read_to_it(self, monkeypatch):
        monkeypatch.setattr("ragmon.server.probe_client.MAX_REPLY_BYTES", 1000)
        found = replied((200, {"Content-Type": "text/plain"}, b"x" * 5000))[0]
        assert (found.result, found.record.error) == ("error", "UnreadableReplyError")

    @pytest.mark.parametrize("status", [301, 307, 400, 401, 500])
    def test_a_status_is_the_error_and_redirects_are_not_followed(self, status):
        found, asked = replied((status, {"Location": "/other"}, b""))
        assert (found.result, found.record.error, len(asked)) == ("error", f"Http{status}Error", 1)
        assert not found.overloaded

    @pytest.mark.parametrize("status", [502, 503, 504])
    def test_an_application_that_has_too_much_to_do_is_noticed(self, status):
        found = replied((status, {}, b""))[0]
        assert (found.result, found.overloaded, found.wait) == ("error", True, None)

    @pytest.mark.parametrize(
        ("status", "headers", "wait"),
        [(429, {}, 0.0), (429, {"Retry-After": "7"}, 7.0), (503, {"Retry-After": "2"}, 2.0)],
    )
    def test_one_that_asks_to_wait_is_asked_again_three_times_and_then_failed(self, status, headers, wait):
        found = replied((status, headers, b""))[0]
        assert (found.result, found.wait, found.record) == ("throttled", wait, None)
        last = replied((status, headers, b""), question=QUESTION.__class__(0, "q1", "?", tries=2))[0]
        assert (last.result, last.record.error) == ("error", f"Http{status}Error")

    def test_a_date_to_wait_for_is_understood(self):
        found = replied((503, {"Retry-After": formatdate(time() + 30, usegmt=True)}, b""))[0]
        assert 25 < found.wait <= 31

    def test_whoever_hangs_up_was_there(self):
        found = replied(None)[0]
        assert (found.result, found.record.error, found.unreachable) == ("error", "ConnectionError", "")

    def test_nobody_there_is_told_apart(self):
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            found = ask(f"http://127.0.0.1:{closed.getsockname()[1]}/")
        assert (found.result, found.record.error) == ("error", "UnreachableError")
        assert found.unreachable == "Connection refused"
        assert found.overloaded

    def test_whoever_speaks_something_else_was_there(self):
        with socket.create_server(("127.0.0.1", 0)) as door:

            def greet():
                with door.accept()[0] as visitor:
                    visitor.recv(10_000)
                    visitor.sendall(b"220 smtp.example ready\r\n")

            threading.Thread(target=greet, daemon=True).start()
            found = ask(f"http://127.0.0.1:{door.getsockname()[1]}/")
        assert (found.record.error, found.unreachable) == ("ConnectionError", "")

    def test_a_certificate_nobody_vouches_for_is_not_taken(self, tmp_path, monkeypatch):
        made, key = certificate(tmp_path)
        with web(lambda _: ANSWER, tls=(made, key)) as there:
            found = ask(there.url)
            assert (found.record.error, found.overloaded, there.asked) == ("UnreachableError", True, [])
            assert found.unreachable.startswith("its certificate is not trusted (self")
            monkeypatch.setenv("SSL_CERT_FILE", str(made))
            assert ask(there.url).result == "ok"

    def test_one_that_says_nothing_is_given_up_in_time(self):
        done = threading.Event()
        with web(lambda _: done.wait(TIMEOUT) and None) as there:
            found = ask(there.url, timeout="200ms")
            done.set()
        assert (found.result, found.record.error, found.overloaded) == ("timeout", "TimeoutError", True)
        assert found.record.latency_ms.total > 0

    def test_one_that_dribbles_is_given_up_in_time_as_well(self):
        done = threading.Event()
        with socket.create_server(("127.0.0.1", 0)) as door:

            def dribble():
                with suppress(OSError), door.accept()[0] as visitor:
                    visitor.recv(10_000)
                    visitor.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                    while not done.wait(0.02):
                        visitor.sendall(b".")

            dribbling = threading.Thread(target=dribble)
            dribbling.start()
            found = ask(f"http://127.0.0.1:{door.getsockname()[1]}/", timeout="300ms")
            done.set()
            dribbling.join()
        assert found.result == "timeout"


@pytest.mark.parametrize(
    "headers",
    [
        {"Age": "31"},
        {"X-Cache": "TCP_MEM_HIT from edge"},
        {"X-Cache": "Hit from cloudfront"},
        {"CF-Cache-Status": "HIT"},
        {"Cache-Status": "edge; fwd=miss, shield; hit"},
    ],
)
def test_an_answer_a_cache_gave_is_no_draw_of_the_pipeline(headers):
    found = replied((200, {"Content-Type": "application/json", **headers}, b'{"answer": "x"}'))[0]
    assert (found.result, found.record) == ("cached", None)


@pytest.mark.parametrize(
    "headers",
    [{"Age": "0"}, {"X-Cache": "TCP_MISS"}, {"X-Cache": "MISS"}, {"CF-Cache-Status": "DYNAMIC"}, {"X-Cache": "white"}],
)
def test_an_answer_a_cache_let_through_is_one(headers):
    assert replied((200, {"Content-Type": "application/json", **headers}, b'{"answer": "x"}'))[0].result == "ok"


@pytest.mark.parametrize(
    ("url", "told"), [("http://me:hunter2@rag.example/", "names a user"), ("http://:80/", "is not an address")]
)
def test_an_address_nobody_should_ask_is_refused_and_no_password_is_shown(url, told):
    with pytest.raises(RagmonError, match=told) as refused:
        HttpTarget(url, body="{question}", headers={}, key=None)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("headers", [{"Authorization": "Bearer hunter2\nX: y"}, {"A b": "c"}, {"X": "grün"}, {"": "x"}])
def test_a_header_that_cannot_be_sent_is_refused_and_its_value_not_shown(headers):
    with pytest.raises(RagmonError, match="cannot be sent") as refused:
        HttpTarget("http://127.0.0.1/", body="{question}", headers=headers, key=None)
    assert "hunter2" not in str(refused.value)
