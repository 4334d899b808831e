"""What an attacker sends to a server, one dose at a time; all of it is bounded, and stays on loopback."""

from __future__ import annotations

import gzip
import http.client
import json
import random
import socket
import ssl
import urllib.parse
from functools import cache
from time import time_ns

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.core.record import Latency
from ragmon.ingest.spans.span import Span
from tests.support.otlp_requests import as_json, export
from tests.support.serving import PROTOBUF, asked, foreign, whole

JSON = "application/json"
TIMEOUT = 30.0
"""Seconds an attacker waits for an answer."""
_IDS = random.Random(7)


class Target:
    """A server, as everybody sees it from outside.

    Args:
        otlp: Where it takes exports, `https://host:port`.
        admin: Where it shows what it counted.
        trust: Knows its certificate.
    """

    def __init__(self, otlp, admin, trust):
        self.otlp, self.admin = (urllib.parse.urlsplit(place) for place in (otlp, admin))
        self._trust = trust

    def post(self, path, body, kind=PROTOBUF, **headers):
        """Status and body of what the write port answers."""
        link = http.client.HTTPSConnection(self.otlp.hostname, self.otlp.port, timeout=TIMEOUT, context=self._trust)
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        return _ask(link, "POST", path, body, {"Content-Type": kind, **told})

    def get(self, path, **headers):
        """Status and body of what the admin port answers."""
        link = http.client.HTTPConnection(self.admin.hostname, self.admin.port, timeout=TIMEOUT)
        return _ask(link, "GET", path, None, headers)

    def raw(self, data):
        """What the write port answers to bytes that are no ordinary request."""
        with (
            socket.create_connection((self.otlp.hostname, self.otlp.port), timeout=TIMEOUT) as plain,
            self._trust.wrap_socket(plain, server_hostname="localhost") as link,
        ):
            link.sendall(data)
            try:
                return link.recv(65_536)
            except OSError:
                return b""

    def opened(self):
        """A connection to the write port on which nothing was said yet."""
        return socket.create_connection((self.otlp.hostname, self.otlp.port), timeout=TIMEOUT)


def _ask(link, method, path, body, headers):
    try:
        link.request(method, path, body, headers)
        answer = link.getresponse()
        return answer.status, answer.read()
    finally:
        link.close()


def trusting(cert):
    """What a client trusts who knows a server's certificate."""
    return ssl.create_default_context(cafile=cert)


# --- text -------------------------------------------------------------------------------------------------------------


def asked_and_answered(question, answer, **more):
    """An export of one trace some framework made."""
    spans = foreign(_IDS.getrandbits(48) + (1 << 50))
    root = spans[0]._replace(
        attributes={**spans[0].attributes, "input.value": question, "output.value": answer, **more}
    )
    return export([root, *spans[1:]]).SerializeToString()


def slow_patterns(target, _rng):
    """An answer on which a search for citations tries everything from everywhere."""
    body = asked_and_answered("What is it?", "citations: [" * 60_000)
    target.post("/v1/traces", gzip.compress(body), Content_Encoding="gzip")


def combining_marks(target, rng):
    """A question and an answer that take as long to normalise as the square of their length."""
    marks = "a" + "\u0315\u0300" * 64_000
    told = (marks, "An answer.") if rng.random() < 0.5 else ("What is it?", marks)
    target.post("/v1/traces", asked_and_answered(*told))


def half_characters(target, _rng):
    """A text cut inside an emoji, and one that is no UTF-8."""
    body = asked_and_answered("What is X?", "An answer Y.")
    request = ExportTraceServiceRequest.FromString(body)
    target.post("/v1/traces", as_json(request).replace(b"What is X?", b"What is \\ud83d?"), JSON)
    target.post("/v1/traces", body.replace(b"An answer Y.", b"An answer \xff."))


def forged_lines(target, _rng):
    """An acknowledgement that would look like a line of a log."""
    reason = "\x1b[31mRED\x1b[0m\n2026-11-22 23:59:59,000 ERROR forged line"
    said = {"gate": "citation_scope", "pipeline": "support", "reason": reason}
    target.post("/v1/ack", json.dumps(said).encode(), JSON)


# --- names ------------------------------------------------------------------------------------------------------------


def new_names(target, rng):
    """Pipelines, builds, indexes and errors nobody heard of, some of them long, some of them with control codes."""
    for _ in range(20):
        name = f"pod-{rng.getrandbits(40):x}" + rng.choice(["", "\x1b[2J", "\u202e", "x" * 5_000])
        told = {"pipeline": name, "build": f"b{rng.getrandbits(32)}", "index_hash": f"{rng.getrandbits(32):x}"}
        record = asked(_IDS.getrandbits(60), error=f"E{rng.getrandbits(20)}", **told)
        target.post("/v1/traces", whole([record]))


def endless_numbers(target, _rng):
    """Latencies that no request has."""
    for total in (1e308, 1e12, -5.0):
        record = asked(_IDS.getrandbits(60), latency_ms=Latency(total=total), pipeline="others")
        target.post("/v1/traces", whole([record]))


def orphans(target, rng):
    """Labels of answers that nobody gave."""
    many = [
        {"trace_id": rng.choice([f"{_IDS.getrandbits(120):032x}", "../../x", "x" * 999]), "correct": True, "rater": "r"}
        for _ in range(2_000)
    ]
    target.post("/v1/labels", json.dumps(many).encode(), JSON)


# --- size -------------------------------------------------------------------------------------------------------------


@cache
def _documents(n):
    return json.dumps([{"document.id": f"d{place}"} for place in range(n)])


def many_documents(target, _rng):
    """Half a million documents in one attribute."""
    body = asked_and_answered("What is it?", "It.", **{"retrieval.documents": _documents(500_000)})
    target.post("/v1/traces", gzip.compress(body, 1), Content_Encoding="gzip")


def many_spans(target, _rng):
    """A trace of more spans than any request has."""
    trace_id, now = f"{_IDS.getrandbits(120):032x}", time_ns()
    spans = [
        Span(trace_id, f"{place:016x}", f"{1:016x}", "s", now - 1, now, {}, scope="x") for place in range(2, 30_000)
    ]
    target.post("/v1/traces", export(spans).SerializeToString())


def many_traces(target, _rng):
    """Traces that all fall due at once."""
    spans = [span for _ in range(300) for span in foreign(_IDS.getrandbits(48) + (1 << 50))]
    target.post("/v1/traces", export(spans).SerializeToString())


def large_bodies(target, _rng):
    """Some megabytes of attributes nobody reads."""
    body = asked_and_answered("What is it?", "It.", **{f"attribute.{place}": "x" * 70_000 for place in range(100)})
    target.post("/v1/traces", body)


def crowds(target, rng):
    """Twenty megabytes of empty messages in a hundred kilobytes."""
    zeros = rng.choice([b"\0", b"\x08\x01"]) * (9 << 20) + rng.randbytes(110 << 10)
    target.post("/v1/traces", gzip.compress(zeros, 1), Content_Encoding="gzip")


def bombs(target, _rng):
    """A body of a megabyte that inflates to a gigabyte."""
    target.post("/v1/traces", _bomb(), Content_Encoding="gzip")


@cache
def _bomb():
    return gzip.compress(bytes(256 << 20), 9)


# --- transport --------------------------------------------------------------------------------------------------------


def garbage(target, rng):
    """Bytes, and the beginning of an export."""
    body = whole([asked(_IDS.getrandbits(60))])
    for found in (rng.randbytes(2_000), body[: rng.randrange(len(body))], b"{" * 50_000):
        target.post("/v1/traces", found, rng.choice([PROTOBUF, JSON]))


def smuggling(target, _rng):
    """Two lengths, a body that is too large, paths that are others' or nobody's."""
    start = b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    target.raw(start + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
    target.raw(start + b"Content-Length: 99999999\r\nConnection: close\r\n\r\nabc")
    target.post("/v1/logs", b"")
    target.post("/api/public/otel/v1/traces", b"")
    target.post("/../../etc/passwd", b"")
    target.get("/metrics", Host="evil.example")
    target.get("/api/status", Origin="http://evil.example")


class Idlers:
    """Connections on which little is said: half a handshake, or half a request.

    Args:
        most: How many are held at once, and given up at the end.
    """

    def __init__(self, most=300):
        self._most = most
        self._held = []

    def __call__(self, target, rng):
        for _ in range(50):
            link = target.opened()
            link.sendall(rng.choice([b"\x16\x03\x01\x00\xee\x01\x00\x00\xea\x03\x03", b"\x16", b""]))
            self._held.append(link)
        while len(self._held) > self._most:
            self._held.pop(0).close()

    def close(self):
        """Give up all."""
        for link in self._held:
            link.close()
        self._held.clear()


def doses(idlers):
    """Everything there is, by name."""
    of = (slow_patterns, combining_marks, half_characters, forged_lines, new_names, endless_numbers, orphans)
    more = (many_documents, many_spans, many_traces, large_bodies, crowds, bombs, garbage, smuggling)
    return {dose.__name__: dose for dose in (*of, *more)} | {"half_handshakes": idlers}


def give(dose, target, rng):
    """Give a dose; a server that hangs up, or was killed, is none of the attacker's business."""
    try:
        dose(target, rng)
    except (OSError, http.client.HTTPException):
        return False
    return True
