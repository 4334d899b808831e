"""What `ragmon serve` answers to requests that nobody well-meaning sends, and what it counts as refused."""

from __future__ import annotations

import gzip
import json
import re
import signal
import socket
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

from tests.support.before import environment

PORTS = '[serve]\notlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\nstate_dir = "state"\n'
TOKEN = "a-token-of-more-than-sixteen-bytes"
PROTOBUF, JSON = "application/x-protobuf", "application/json"
MIB = 1 << 20
LIMIT = 60.0
"""Seconds for an answer."""
QUIET = 2.0
"""Seconds after an answer in which a second one may follow."""
SEARCHES = (b" /api/traces", b" /t/", b" /api/records", b" /api/why", b" /api/compare")
MINUTE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")
LABEL = {"trace_id": "0af7651916cd43dd8448eb211c80319c", "correct": True, "rater": "r1"}


def http(
    method: str = "POST", path: str = "/v1/traces", body: bytes = b"", kind: str = PROTOBUF, **headers: str
) -> bytes:
    """A request as bytes; headers given as None are left out.

    Args:
        method: Its method.
        path: Its target.
        body: Its body.
        kind: Its media type.
        headers: More headers, with underscores for hyphens.
    """
    told: dict[str, str | None] = {"Host": "127.0.0.1", "Content-Type": kind, "Content-Length": str(len(body))}
    told |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items() if value is not None)]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def zstd(size: int) -> bytes:
    """A frame that promises a size and holds one block of one repeated byte."""
    return b"\x28\xb5\x2f\xfd" + b"\xe0" + struct.pack("<Q", size) + struct.pack("<I", (100_000 << 3) | 3)[:3] + b"a"


def zeros(size: int) -> bytes:
    """So many zeros, compressed."""
    return gzip.compress(bytes(size), mtime=0)


def chunked(*chunks: bytes) -> bytes:
    """A body in chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


SPAN = {"traceId": "0a" * 16, "spanId": "0b" * 8, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
TRACES = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [SPAN]}]}]}).encode()
ACK = json.dumps({"gate": "absent", "reason": "because"}).encode()
GET = {"method": "GET", "kind": None}
WRITE: dict[str, bytes] = {
    "empty traces": http(),
    "empty metrics": http(path="/v1/metrics"),
    "empty logs": http(path="/v1/logs"),
    "empty traces in JSON": http(body=b"{}", kind=JSON),
    "one span in JSON": http(body=TRACES, kind=JSON),
    "the path of Langfuse": http(path="/api/public/otel/v1/traces"),
    "charset": http(body=b"{}", kind=f"{JSON}; charset=utf-8"),
    **{f"method {name}": http(name) for name in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "HEAD", "POTS")},
    "CONNECT": b"CONNECT 127.0.0.1:80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "root": http("GET", "/"),
    **{
        f"path {path}": http(path=path)
        for path in ("/v1/trace", "/v1/traces/", "//v1/traces", "/v1/../v1/traces", "/V1/TRACES", "/v1/traces?x=1", "*")
    },
    "absolute target": http(path="http://127.0.0.1/v1/traces"),
    "foreign target": http(path="http://evil.example/v1/traces"),
    "path of bytes": b"POST /\xff\xfe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "long path": http(path="/" + "a" * 20_000),
    **{
        f"host {host!r}": http(Host=host)
        for host in (
            "evil.example",
            "localhost",
            "localhost:1",
            "[::1]",
            "",
            "localhost.evil.example",
            "2130706433",
            "@a",
        )
    },
    "no host": http(Host=None),
    "two hosts": http().replace(b"Host: 127.0.0.1", b"Host: 127.0.0.1\r\nHost: evil.example"),
    "origin": http(Origin="https://evil.example"),
    "origin null": http(Origin="null"),
    **{
        f"type {kind!r}": http(kind=kind)
        for kind in (
            "text/plain",
            "application/x-www-form-urlencoded",
            "",
            "x",
            "application/grpc",
            "multipart/form-data",
        )
    },
    "no type": http(kind=None),
    **{
        f"encoding {coding}": http(body=gzip.compress(b"", mtime=0), Content_Encoding=coding)
        for coding in ("deflate", "br", "gzip, gzip", "x", "gzip;q=1", "GZIP", "identity, gzip", "")
    },
    "gzip that is none": http(body=b"hello", Content_Encoding="gzip"),
    "gzip cut": http(body=gzip.compress(TRACES, mtime=0)[:-6], Content_Encoding="gzip", kind=JSON),
    "gzip with a wrong sum": http(body=gzip.compress(b"abc", mtime=0)[:-8] + bytes(8), Content_Encoding="gzip"),
    "gzip and more": http(body=gzip.compress(b"", mtime=0) + b"more", Content_Encoding="gzip"),
    "gzip of many members": http(body=gzip.compress(b"", mtime=0) * 100_000, Content_Encoding="gzip"),
    "zlib for gzip": http(body=zlib.compress(b"abc"), Content_Encoding="gzip"),
    "bomb": http(body=zeros(64 * MIB), Content_Encoding="gzip"),
    "small bomb": http(body=zeros(2 * MIB), Content_Encoding="gzip"),
    "zstd that is none": http(body=b"hello", Content_Encoding="zstd"),
    "zstd of an exabyte": http(body=zstd(1 << 60), Content_Encoding="zstd"),
    "no protobuf": http(body=b"\xff\xff\xff"),
    "protobuf cut": http(body=b"\x0a\x7f\x0a"),
    "protobuf of groups": http(body=b"\x0b" * 5000),
    "protobuf of another message": http(body=b"\x0a\x04\x08\x96\x01\x00"),
    "protobuf, endless number": http(body=b"\x08" + b"\xff" * 11),
    "JSON for protobuf": http(body=TRACES),
    "no JSON": http(body=b"{", kind=JSON),
    "JSON of bytes": http(body=b'{"a": "\xff"}', kind=JSON),
    "deep JSON": http(body=b"[" * 100_000, kind=JSON),
    "deep JSON, closed": http(body=b"[" * 5000 + b"]" * 5000, kind=JSON),
    "JSON list": http(body=b"[]", kind=JSON),
    "JSON text": http(body=b'"x"', kind=JSON),
    "JSON of other types": http(body=b'{"resourceSpans": 7}', kind=JSON),
    "JSON with a long number": http(body=b'{"resourceSpans": 1' + b"0" * 10_000 + b"}", kind=JSON),
    "JSON with NaN": http(body=b'{"resourceSpans": NaN}', kind=JSON),
    "JSON with a mark": http(body=b"\xef\xbb\xbf{}", kind=JSON),
    "JSON twice": http(body=b"{}{}", kind=JSON),
    "wrong ids": http(body=TRACES.replace(b"0a0a", b"zzzz"), kind=JSON),
    "short ids": http(body=TRACES.replace(b"0a" * 16, b"0a"), kind=JSON),
    "too many spans": http(
        body=b'{"resourceSpans": [{"scopeSpans": [{"spans": [' + b"{}," * 50_000 + b"{}]}]}]}", kind=JSON
    ),
    "too large by its length": http(Content_Length=str(9 * MIB)),
    "too large": http(body=bytes(8 * MIB + 1)),
    "longer than a number": http(Content_Length="9" * 30),
    "length of no number": http(Content_Length="ten"),
    "negative length": http(Content_Length="-1"),
    "length with a sign": http(Content_Length="+0"),
    "two lengths": http().replace(b"Content-Length: 0", b"Content-Length: 0\r\nContent-Length: 5"),
    "length and chunks": http(Transfer_Encoding="chunked", body=chunked()),
    "chunks": http(Content_Length=None, Transfer_Encoding="chunked") + chunked(b""),
    "chunks of a body": http(Content_Length=None, Transfer_Encoding="chunked", kind=JSON) + chunked(b"{", b"}"),
    "chunk of no size": http(Content_Length=None, Transfer_Encoding="chunked") + b"zz\r\n",
    "chunk of a huge size": http(Content_Length=None, Transfer_Encoding="chunked") + b"fffffffffffffffff\r\n",
    "negative chunk": http(Content_Length=None, Transfer_Encoding="chunked") + b"-1\r\n",
    "another transfer": http(Content_Length=None, Transfer_Encoding="gzip"),
    "chunked twice": http(Content_Length=None, Transfer_Encoding="chunked, chunked"),
    "space before a colon": http().replace(b"Host:", b"Host :"),
    "folded header": http(X="a\r\n b"),
    "line feeds alone": http().replace(b"\r\n", b"\n"),
    "zero in a header": http(X="a\0b"),
    "two requests": http() + http("GET", "/"),
    "a request within a body": http(body=http("GET", "/")),
    "HTTP/1.0": http().replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP/1.0 without host": b"POST /v1/traces HTTP/1.0\r\nContent-Type: application/x-protobuf\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/3.7": http().replace(b"HTTP/1.1", b"HTTP/3.7"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
    "noise": bytes(range(256)),
    "nothing but lines": b"\r\n" * 100,
    "many headers": http(**{f"X_{n}": "a" for n in range(5000)}),
    "long header": http(X="a" * 20_000),
    "expects": http(Expect="100-continue"),
    "expects else": http(Expect="cake"),
    "upgrade": http(Upgrade="websocket", Connection="Upgrade"),
    "one label": http(path="/v1/labels", body=json.dumps(LABEL).encode(), kind=JSON),
    "label without a rater": http(path="/v1/labels", body=b'{"trace_id": "5a", "correct": true}', kind=JSON),
    "no labels": http(path="/v1/labels", body=b"{", kind=JSON),
    "labels of no objects": http(path="/v1/labels", body=b"[{}, 1]", kind=JSON),
    "labels in protobuf": http(path="/v1/labels"),
    "too many labels": http(path="/v1/labels", body=b"[" + b"{}," * 10_000 + b"{}]", kind=JSON),
    "deep labels": http(path="/v1/labels", body=b"[" * 100_000, kind=JSON),
    "unknown alarm": http(path="/v1/ack", body=ACK, kind=JSON),
    "no acknowledgement": http(path="/v1/ack", body=b"[]", kind=JSON),
    "acknowledgement without a reason": http(path="/v1/ack", body=b'{"gate": "x"}', kind=JSON),
    "long acknowledgement": http(path="/v1/ack", body=b" " * 70_000, kind=JSON),
    "log that is not a message": http(
        path="/v1/logs",
        kind=JSON,
        body=b'{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "x"}}]}]}]}',
    ),
}
"""Requests to the write port of a server without a token."""
AUTHORIZED = {"right": f"Bearer {TOKEN}", "basic": "Basic eDphLXRva2VuLW9mLW1vcmUtdGhhbi1zaXh0ZWVuLWJ5dGVz"}
AUTHORIZED |= {"wrong": "Bearer another", "empty": "Bearer ", "bare": TOKEN, "scheme": f"Digest {TOKEN}"}
AUTHORIZED |= {"small letters": f"bearer {TOKEN}", "longer": f"Bearer {TOKEN}x", "bytes": "Bearer \xff\xfe"}
PROTECTED = {
    **{f"token, {name}": http(Authorization=value) for name, value in AUTHORIZED.items()},
    "no token": http(),
    "no token, labels": http(path="/v1/labels", body=b"[]", kind=JSON),
    "two tokens": http(Authorization="Bearer another").replace(
        b"\r\n\r\n", f"\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    ),
    "token and any host": http(Authorization=AUTHORIZED["right"], Host="evil.example"),
    "wrong token, wrong path": http(path="/v1/x", Authorization="Bearer another"),
}
"""Requests to the write port of a server with a token."""
PATHS = (
    *(
        "/",
        "/absent",
        "/healthz",
        "/readyz",
        "/metrics?x=1",
        "/api/status",
        "/api/status?window=5m",
        "/api/history?x=1",
    ),
    *(
        "/api/records",
        "/api/records?gate=absent",
        "/api/records?limit=0",
        "/api/records?limit=9999",
        "/api/records?limit=x",
    ),
    *("/api/records?outcome=pass", "/api/records?since=soon", "/api/records?cursor=zz", "/api/records?gate=a&gate=b"),
    *("/api/why", "/api/why?gate=absent", "/api/why?gate=default/absent", "/api/compare", "/api/compare?by=colour"),
    *("/api/compare?by=build&baseline=a&candidate=b", "/api/traces/", "/api/traces/zz", f"/api/traces/{'0a' * 16}"),
    *("/api/traces/..%2f..%2fetc", "/t/zz", "/p/absent", "/p/default/absent", "/api/chunks", "/static/absent.js"),
    *("/static/../serve.py", "/static/%2e%2e/x", "/api/status/", "//healthz", "/%00", "/runbook?x=1", "/alarms?x"),
)
ADMIN = {
    **{f"GET {path}": http("GET", path, kind=None) for path in PATHS},
    **{f"{method} /api/status": http(method, "/api/status") for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS")},
    "POST /v1/ack": http(path="/v1/ack", body=ACK, kind=JSON),
    "foreign host": http("GET", "/api/status", Host="evil.example"),
    "no host": http("GET", "/api/status", Host=None),
    "origin": http("GET", "/api/status", Origin="https://evil.example"),
    "token where there is none": http("GET", "/api/traces/zz", Authorization="Bearer another"),
    "body": http("GET", "/healthz", body=b"hello"),
    "large body": http("GET", "/healthz", Content_Length=str(9 * MIB)),
    "many headers": http("GET", "/healthz", **{f"X_{n}": "a" for n in range(5000)}),
    "HTTP/1.0": http("GET", "/healthz").replace(b"HTTP/1.1", b"HTTP/1.0"),
    "two requests": http("GET", "/healthz") * 2,
    "noise": bytes(range(256)),
    "long query": http("GET", "/api/records?gate=" + "a" * 15_000),
    "line feeds alone": http("GET", "/healthz").replace(b"\r\n", b"\n"),
}
"""Requests to the admin port."""
TOKEN_ADMIN = {
    f"GET {path}, {name}": http("GET", path, kind=None, Authorization=value)
    for path in ("/api/status", "/api/traces/zz", "/api/chunks")
    for name, value in {"right": AUTHORIZED["right"], "wrong": AUTHORIZED["wrong"], "none": None}.items()
}
"""Requests to the admin port of a server with a token."""


def requests(folder: Path, servers: Sequence[str] = ("open", "token")) -> dict[str, Any]:
    """`commands/http`: status and body of every answer, and what was counted as refused.

    Args:
        folder: An empty folder.
        servers: Which of the two are asked.
    """
    found: dict[str, Any] = {}
    for name in servers:
        with server(folder / name, 'token_file = "token"\n' if name == "token" else "") as places:
            sent = {"otlp": WRITE, "admin": ADMIN} if name == "open" else {"otlp": PROTECTED, "admin": TOKEN_ADMIN}
            for port, each in sent.items():
                found[f"{name} {port}"] = asked(places[port], each)
            found[f"{name} counted"] = counted(places["admin"])
    return {"commands/http": found}


def asked(place: tuple[str, int], each: dict[str, bytes]) -> dict[str, Any]:
    """The answers to some requests, many at once; of those that search, which a server does one by one, one by one.

    Args:
        place: Host and port.
        each: The requests by name.
    """
    searches = [name for name, request in each.items() if any(path in request for path in SEARCHES)]
    found = {name: answered(place, each[name]) for name in searches}
    others = [name for name in each if name not in found]
    with ThreadPoolExecutor(24) as pool:
        answers = pool.map(lambda name: answered(place, each[name]), others)
        return found | dict(zip(others, answers, strict=True))


@contextmanager
def server(folder: Path, text: str) -> Iterator[dict[str, tuple[str, int]]]:
    """`ragmon serve` on free ports, ended at the end; gives its addresses.

    Args:
        folder: Made for it.
        text: More of `[serve]`.
    """
    folder.mkdir()
    (folder / "ragmon.toml").write_text(PORTS + text, encoding="utf-8")
    (folder / "token").write_text(TOKEN, encoding="ascii")
    (folder / "token").chmod(0o600)
    command = [sys.executable, "-m", "ragmon", "serve"]
    env = environment(TMPDIR=str(folder))
    with subprocess.Popen(command, cwd=folder, env=env, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        places = {}
        for line in process.stderr:
            if found := re.match(r"(\w+): (.+):(\d+)$", line):
                places[found[1]] = (found[2], int(found[3]))
            if line == "ready\n":
                break
        Thread(target=process.stderr.read, daemon=True).start()  # so that it can go on writing
        try:
            yield places
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)


def answered(place: tuple[str, int], request: bytes) -> Any:
    """The answers to a request: those that come before the server closes, or falls silent.

    Args:
        place: Host and port.
        request: Its bytes.
    """
    received = b""
    with socket.create_connection(place, timeout=LIMIT) as connection:
        try:
            connection.sendall(request)
            while chunk := connection.recv(1 << 20):
                received += chunk
                connection.settimeout(QUIET)
            end = "closed"
        except TimeoutError:
            end = "open"
        except ConnectionError:
            end = "closed"
    return [*(_shown(*answer) for answer in split(received)), end]


def split(received: bytes) -> Iterator[tuple[str, dict[str, str], bytes]]:
    """The answers in what was received: status line, headers, body."""
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        size = int(headers.get("content-length", 0))
        if headers.get("transfer-encoding") == "chunked":
            size = received.find(b"0\r\n\r\n") + 5
        body = b"" if received.startswith(b"HTTP/1.1 ") else received[:size]  # to HEAD there is no body
        yield status, headers, body
        received = received[len(body) :]


def _shown(status: str, headers: dict[str, str], body: bytes) -> dict[str, Any]:
    kind = headers.get("content-type", "")
    kept: dict[str, Any] = {"status": status, "type": kind}
    if "retry-after" in headers:
        kept["retry"] = headers["retry-after"]
    if kind.startswith(JSON) and not status.endswith("200 OK"):
        kept["body"] = json.loads(MINUTE.sub("MINUTE", body.decode())) if body else ""
    elif kind.startswith(JSON):
        told = json.loads(body) if body else {}
        kept["body"] = told if len(body) < 300 else sorted(told)
    elif kind.startswith("text/plain") and len(body) < 500:
        kept["body"] = body.decode()
    elif kind == PROTOBUF:
        kept["body"] = body.decode(errors="backslashreplace")
    return kept


def counted(place: tuple[str, int]) -> dict[str, str]:
    """The requests that the server counted as refused, from `/metrics`."""
    with socket.create_connection(place, timeout=LIMIT) as connection:
        connection.sendall(http("GET", "/metrics", kind=None, Connection="close"))
        received = b"".join(iter(lambda: connection.recv(1 << 20), b""))
    lines = (line for line in received.decode().splitlines() if line.startswith("ragmon_requests_refused_total{"))
    return dict(line.rsplit(" ", 1) for line in lines)


SUBJECTS: dict[str, Callable[[Path, Path], dict[str, Any]]] = {"http": requests}
