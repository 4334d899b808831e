"""Records as spans, a producer's totals as metrics, and scores as events, sent over OTLP/HTTP.

`OtlpSession` takes address and message from the exporters and nothing else: they fill headers, certificates and
credentials from the application's variables, take a redirect for a success, read responses of any size, start their
timeout anew with every byte, and throw away which spans a partial success rejected. Spans and metrics are made here and
not by a tracer or a meter, which take their limits from the application's variables.
"""

from __future__ import annotations

import gzip
import logging
import math
import os
import re
import socket
import ssl
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from http import HTTPStatus
from http.client import HTTPException
from inspect import signature
from itertools import groupby
from operator import attrgetter
from threading import Event, Lock, Timer
from time import monotonic, time, time_ns
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
import requests
from opentelemetry import context
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Buckets,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, Status, StatusCode
from requests.adapters import HTTPAdapter
from requests.structures import CaseInsensitiveDict
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

from ragmon.capture.exporters import Scored
from ragmon.core import constants, semconv
from ragmon.core.errors import RagmonError, error_location, warn_once
from ragmon.core.network import OVERLOADED, BackOff, parse_url, retry_after
from ragmon.core.process import current_version
from ragmon.core.record import Label, Record, Totals, encode
from ragmon.stats.histograms import NOT_POSITIVE, bucket_value

PROTOBUF: Final = "application/x-protobuf"
TIMEOUT: Final = 10.0
MAX_BODY: Final = 1 << 16
"""Largest response that is read, in bytes; it is not inflated."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""The limits of the first and of every pause between two attempts, in seconds."""
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.FORBIDDEN: "the token is not allowed to write there",
    HTTPStatus.NOT_FOUND: "the address of an OTLP/HTTP receiver, without /v1/traces",
    HTTPStatus.METHOD_NOT_ALLOWED: "it accepts no records: of `ragmon serve`, use the port `[serve] otlp`, not `admin`",
}
# Private names, but all instrumentations read them; older ones read the plain string.
_SUPPRESSED: Final = (
    getattr(context, "_SUPPRESS_INSTRUMENTATION_KEY", None),
    getattr(context, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", None),
    "suppress_instrumentation",
)
_FOREIGN_LOGS: Final = (
    "opentelemetry.exporter.otlp.common._aggregation",
    "opentelemetry.exporter.otlp.proto.common._internal",
    "opentelemetry.exporter.otlp.proto.common._internal.metrics_encoder",
    "opentelemetry.exporter.otlp.proto.http._common",
    "opentelemetry.exporter.otlp.proto.http.metric_exporter",
    "opentelemetry.exporter.otlp.proto.http.trace_exporter",
    "opentelemetry.util.re",
    "urllib3.connectionpool",
)
"""Where the libraries say what ragmon says once in its own log, and quote the application's variables."""

Cause = TypeVar("Cause", bound=BaseException)


class SendResult(NamedTuple):
    """The result of a request.

    Attributes:
        reason: Why the data is lost; None if the receiver accepted it. `export_refused`: rejected permanently.
            `export_timeout`: no response in time. `export_failed`: not reachable, or not ready.
        wait: Seconds the receiver asks to wait before a retry; None if it did not ask.
    """

    reason: str | None = None
    body: bytes = b""
    again: bool = False
    wait: float | None = None

    def rejected(self, response: Any, field: str) -> int:
        """How many items of an accepted request the receiver rejected: a field of its partial success."""
        try:
            return max(0, int(getattr(response.FromString(self.body).partial_success, field)))
        except Exception:  # noqa: BLE001 - it accepted the request, even if its message is not readable
            return 0

    def count_lost(self, lost: Counter[str], n: int, response: Any, field: str) -> None:
        """Count what is lost of some items, by reason."""
        if self.reason is not None:
            lost[self.reason] += n
        elif rejected := self.rejected(response, field):
            lost[constants.EXPORT_REFUSED] += min(n, rejected)


class NotDeliveredError(BaseException):
    """A request has failed for good. No `Exception`, so that no exporter catches it, logs it or tries again."""


class OtlpSession(requests.Session):
    """A session with one OTLP/HTTP receiver, for OpenTelemetry's exporters and for what they have no message for.

    Args:
        endpoint: The receiver's base address; the path of traces or metrics may follow it.
        is_exact: The address is that of a signal, whatever its path.
        token_location: The key or variable that has the token, for the message of a refusal.
        client_certificate: A PEM file of the client's certificate, and that of its key; None where both are in one.
        compression: `gzip`, `deflate` or `none`; None: gzip, and nothing where the receiver is on this machine.
        warns: Log what fails; its owner does so otherwise.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        is_exact: bool = False,
        token: str | None = None,
        token_location: str = "",
        headers: Mapping[str, str] | None = None,
        certificate: str | None = None,
        client_certificate: tuple[str, str | None] | None = None,
        compression: str | None = None,
        timeout: float = TIMEOUT,
        warns: bool = True,
    ) -> None:
        super().__init__()
        self._warns = warns
        self.trust_env = False
        self.timeout = timeout
        # The base address of a receiver; the path of a signal may follow it.
        hint = "http://127.0.0.1:4318, or https://host/path; a token goes into a file of its own"
        url = parse_url(endpoint, "the export endpoint", hint=hint, base=True)
        self.endpoint = url._replace(path=url.path.removesuffix("/v1/traces").removesuffix("/v1/metrics"))
        self._exact = endpoint if is_exact and not endpoint.endswith(("/v1/traces", "/v1/metrics")) else None
        # On the same machine it costs more than it saves.
        self._compression = compression or ("none" if self.endpoint.is_loopback else "gzip")
        self._headers = CaseInsensitiveDict({"User-Agent": f"ragmon/{current_version()}", **(headers or {})})
        if self._compression != "none":
            self._headers["Content-Encoding"] = self._compression
        if token is not None:
            bare_token = token.strip()
            if not re.fullmatch(r"[!-~]+", bare_token):
                raise RagmonError("the export token cannot be sent", hint="one line of printable ASCII without spaces")
            self._headers["Authorization"] = f"Bearer {bare_token}"
        self._unauthorized = "the token is missing or is not the receiver's"
        if token_location:
            is_sent = token is not None or headers
            self._unauthorized = f"the token {'is that of' if is_sent else 'is missing in'} {token_location}"
        is_tls = self.endpoint.scheme == "https"
        self._tls = _tls_context(certificate, client_certificate) if is_tls else None
        self._closing = Event()
        self._init_process()

    def _init_process(self) -> None:
        self._process = os.getpid()
        self._adapter = _Adapter(self._tls)
        self._lock = Lock()
        self._deadline = 0.0
        self._is_late = False
        self.opened = 0
        self._socket: socket.socket | None = None
        self.connected: socket.socket | None = None

    def reset_after_fork(self) -> None:
        """Reset in a forked child, which cannot use the parent's connection and lock."""
        if self._process != os.getpid():
            self._inherited = self._adapter  # never finalised: the parent's threads may have held its locks
            for opened in (self._socket, self.connected):
                with suppress(OSError):
                    os.close(-1 if opened is None else opened.detach())
            self._init_process()

    def address(self, signal: str) -> str:
        """The address of a signal: `traces`, `metrics`, `logs`; a ragmon server also takes `labels`."""
        return self._exact if self._exact and signal in ("traces", "metrics") else f"{self.endpoint}/v1/{signal}"

    def attach(self, opened: socket.socket) -> None:
        """Keep a second descriptor of the connection while a request runs, by which another thread ends the request.

        TLS takes the first one over, and closes it when the connection fails.
        """
        self._release()
        self._socket = socket.socket(fileno=os.dup(opened.fileno()))
        if self._is_late or self._closing.is_set():
            self._end()

    def _release(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _end(self) -> None:
        # The thread that uses the connection goes on with an error.
        running = self._socket  # the other thread may close it at any time
        if running is not None:
            with suppress(OSError):
                running.shutdown(socket.SHUT_RDWR)

    def _expire(self) -> None:
        self._is_late = True
        self._end()

    def run(self, send: Callable[[], object], deadline: float, *, retry: bool = True) -> SendResult:
        """Run a function that sends one request through this session; never raises for a receiver's error.

        Only the system's name resolution can exceed the deadline of the monotonic clock.
        """
        self.reset_after_fork()
        with self._lock, apart(self):
            self._deadline, self._retry = deadline, retry
            self._result = SendResult(constants.EXPORT_FAILED)
            try:
                send()
            except NotDeliveredError:
                pass
            except Exception as error:  # noqa: BLE001 - an exporter may raise anything, and the thread must go on
                warn_once(f"what is exported to {self.endpoint} cannot be encoded: {error_location(error)}")
        if self._closing.is_set():
            self._disconnect()
        return self._result

    def deliver(
        self, signal: str, body: bytes, deadline: float, *, retry: bool = True, kind: str = PROTOBUF
    ) -> SendResult:
        """Send a message that no exporter makes; `kind` is its media type."""
        return self.run(lambda: self._send(self.address(signal), body, kind), deadline, retry=retry)

    def request(  # type: ignore[override]
        self, method: str, url: str, data: bytes = b"", **_merged: object
    ) -> requests.Response:
        """Send an exporter's message; what it has merged out of the environment is ignored."""
        return self._send(url, data, PROTOBUF)

    def _send(self, url: str, data: bytes, kind: str) -> requests.Response:
        back_off = BackOff(FIRST_PAUSE, LONGEST_PAUSE)
        body = _COMPRESS[self._compression](data)
        headers = {**self._headers, "Content-Type": kind}
        # Prepared by itself, it has no headers, cookies or passwords of the session or of a .netrc.
        message = requests.Request("POST", url, headers, data=body).prepare()
        while not self._closing.is_set():
            response, self._result = self._attempt(message)
            if response is not None:
                return response
            pause = back_off.pause(self._result.wait)
            if not (self._retry and self._result.again) or pause >= self._deadline - monotonic():
                break
            self._closing.wait(pause)
        raise NotDeliveredError

    def close(self) -> None:
        """Abort the running request and send no more; may be called from any thread."""
        self.reset_after_fork()
        self._closing.set()
        self._end()
        self._disconnect()

    def _disconnect(self) -> None:
        # If a request is running, its thread closes the connection.
        if self._lock.acquire(blocking=False):
            self._adapter.close()
            self._lock.release()

    def _attempt(self, message: requests.PreparedRequest) -> tuple[requests.Response | None, SendResult]:
        opened, seconds = self.opened, max(self._deadline - monotonic(), 0.001)
        # The timeouts of the libraries start anew with every byte.
        self._is_late, timer = False, Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        if self.connected is not None and self.connected.fileno() != -1:
            self.attach(self.connected)
        try:
            response = self._adapter.send(message, stream=True, timeout=seconds)
            try:
                body = response.raw.read(MAX_BODY, decode_content=False)
            finally:
                response.close()
        except Exception as error:  # noqa: BLE001 - of three libraries
            was_ended = self._is_late and self._socket is not None
            result = self._timed_out() if was_ended else self._failure(error)
            # The server may have closed an idle connection, which shows only on the next request: retry once.
            if result.again and opened == self.opened and not self._closing.is_set():
                return self._attempt(message)
            return None, result
        finally:
            timer.cancel()
            self._release()
        if self._is_late:  # the end of the connection looks like that of a body without a length
            return None, self._timed_out()
        status = response.status_code
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
            return response, SendResult(body=body if kind == PROTOBUF else b"")
        hint = self._unauthorized if status == HTTPStatus.UNAUTHORIZED else _HINTS.get(status)
        self._warn(f"it answered with status {status}" + (f" ({hint})" if hint else ""))
        if status in OVERLOADED:
            wait = retry_after(response.headers.get("Retry-After"))
            return None, SendResult(constants.EXPORT_FAILED, again=True, wait=wait)
        is_failure = status >= HTTPStatus.INTERNAL_SERVER_ERROR
        return None, SendResult(constants.EXPORT_FAILED if is_failure else constants.EXPORT_REFUSED)

    def _failure(self, error: BaseException) -> SendResult:
        # The libraries raise exceptions of their own around the first one.
        causes = [error]
        for outer in causes:
            behind = (outer.__cause__, outer.__context__, *outer.args)
            causes += [found for found in behind if isinstance(found, BaseException) and found not in causes]

        def first(kind: type[Cause]) -> Cause | None:
            found = (cause for cause in causes if not isinstance(cause, requests.RequestException))
            return next((cause for cause in found if isinstance(cause, kind)), None)

        if first(TimeoutError):
            return self._timed_out()
        if untrusted := first(ssl.SSLCertVerificationError):
            self._warn(f"its certificate is not trusted ({untrusted.verify_message})")
            return SendResult(constants.EXPORT_FAILED)
        if cause := first(OSError):
            self._warn(cause.strerror or error_location(cause))
        elif wrong := first(HTTPException):
            self._warn(f"it does not speak HTTP ({error_location(wrong)}); OTLP over HTTP is usually on port 4318")
        else:
            self._warn(error_location(error))
            return SendResult(constants.EXPORT_FAILED)
        return SendResult(constants.EXPORT_FAILED, again=True)

    def _timed_out(self) -> SendResult:
        self._warn("it does not answer in time")
        return SendResult(constants.EXPORT_TIMEOUT)

    def _warn(self, why: str) -> None:
        if self._warns:
            warn_once(f"exporting to {self.endpoint} fails: {why}")


_running: ContextVar[OtlpSession | None] = ContextVar("ragmon_export", default=None)


@contextmanager
def apart(session: OtlpSession) -> Iterator[None]:
    """Keep what a session does inside the block out of the application's traces and log."""
    suppressed = context.get_current()
    for key in _SUPPRESSED:
        if key is not None:
            suppressed = context.set_value(key, True, suppressed)
    token, running = context.attach(suppressed), _running.set(session)
    try:
        yield
    finally:
        _running.reset(running)
        context.detach(token)


class _Quiet(logging.Filter):
    """Drops what the libraries log of ragmon's exports; the application's own stay in its log."""

    def filter(self, record: logging.LogRecord) -> bool:
        return _running.get() is None


for _name in _FOREIGN_LOGS:
    logging.getLogger(_name).addFilter(_Quiet())


class _Attached:
    """A connection whose sockets its session keeps."""

    def _new_conn(self) -> socket.socket:
        session = _running.get()
        if session is None:
            raise RuntimeError("a request of this session is sent inside its `run`")
        session.opened += 1
        opened: socket.socket = super()._new_conn()  # type: ignore[misc]
        session.attach(opened)
        return opened

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        if (session := _running.get()) is not None:
            session.connected = self.sock  # type: ignore[attr-defined]


class _Connection(_Attached, HTTPConnection):
    pass


class _TlsConnection(_Attached, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


class _Adapter(HTTPAdapter):
    """One connection that is kept, with ragmon's TLS settings in place of the environment's."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self._tls = tls
        super().__init__(pool_connections=1, pool_maxsize=1)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        server, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return server, {"ssl_context": self._tls}

    def cert_verify(self, conn: Any, url: Any, verify: Any, cert: Any) -> None:
        pass  # no certificates of `requests` beside those of the TLS settings


_COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "none": bytes,
    "gzip": partial(gzip.compress, compresslevel=1),
    "deflate": zlib.compress,
}


def _tls_context(certificate: str | None, client_certificate: tuple[str, str | None] | None) -> ssl.SSLContext:
    name, hint = certificate, "a PEM file of certificates to trust"
    try:
        settings = ssl.create_default_context(cafile=certificate)
        if client_certificate is not None:
            name, hint = client_certificate[0], "a PEM file of the client's certificate and its key, without a password"
            settings.load_cert_chain(*client_certificate, password=lambda: b"")  # it must not ask on the terminal
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it holds no certificate"
        raise RagmonError(f"{name}: cannot be used as a certificate ({why})", hint=hint) from error
    return settings


SCOPE: Final = InstrumentationScope("ragmon", current_version())
_UNSET: Final = Status(StatusCode.UNSET)
_FAILED: Final = Status(StatusCode.ERROR)
_LATEST: Final = 2**64 - 1
_NANO: Final = 1_000_000_000
_MILLISECONDS: Final = 1000


class ProcessResource(Resource):
    """Attributes of the process, and nothing that the SDK detects; hashed once, and not anew for each span."""

    def __hash__(self) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = super().__hash__()
        return int(found)


def nanoseconds(seconds: float) -> int:
    """A time in the protocol's format, an unsigned number of 64 bits; times after the year 2554 are clipped."""
    found = min(round(min(seconds, _LATEST / _NANO) * _NANO), _LATEST)
    if found < 0:
        raise ValueError("a time before 1970")
    return found


def trace_id(text: str | None) -> int | None:
    """The number of a trace id; None if the text is not one."""
    return _id(text, 16)


def span_id(text: str | None) -> int | None:
    """The number of a span id; None if the text is not one."""
    return _id(text, 8)


def _id(text: str | None, size: int) -> int | None:
    try:
        id_bytes = bytes.fromhex(text or "")
    except ValueError:
        return None
    return int.from_bytes(id_bytes) or None if len(id_bytes) == size else None


def new_span(
    name: str,
    resource: Resource,
    attributes: Mapping[str, str | bool | float],
    times: tuple[int, int],
    *,
    trace: int | None = None,
    parent: int | None = None,
    status: Status = _UNSET,
    links: Sequence[Link] = (),
) -> ReadableSpan:
    """A span that has ended, with its start and its end in nanoseconds.

    A new trace id does not come from `random`, which an application may seed identically in every process.
    """
    trace = trace or int.from_bytes(os.urandom(16))
    return ReadableSpan(
        name,
        SpanContext(trace, int.from_bytes(os.urandom(8)), is_remote=False),
        None if parent is None else SpanContext(trace, parent, is_remote=False),
        resource,
        attributes,
        links=links,
        status=status,
        start_time=times[0],
        end_time=times[1],
        instrumentation_scope=SCOPE,
    )


SCALE: Final = 7
"""128 buckets per octave: ragmon's narrowest bucket is wider, so each count arrives in a bucket of its own."""


def metrics_data(totals: Sequence[Totals], resource: Mapping[str, Any]) -> MetricsData:
    """A producer's totals as OpenTelemetry's metrics; the instance id of the counts is added to the resource."""
    found = []
    for instance, totals_of_instance in groupby(sorted(totals, key=attrgetter("instance")), attrgetter("instance")):
        lines = list(totals_of_instance)
        requests = [
            NumberDataPoint(**_series(line, {semconv.OUTCOME: outcome}), value=n)
            for line in lines
            for outcome, n in ((semconv.KEPT, line.kept), (semconv.UNKEPT, max(0, line.calls - line.kept)))
        ]
        dropped = [
            NumberDataPoint(**_series(line, {semconv.REASON: reason}), value=n)
            for line in lines
            for reason, n in sorted(line.dropped.items())
        ]
        latency = [_histogram(line, line.latency_ms) for line in lines if line.latency_ms]
        cumulative = AggregationTemporality.CUMULATIVE
        sums = (
            (semconv.REQUESTS, "All calls, whether they became records or not", "{request}", requests),
            (semconv.RECORDS_DROPPED, "Records lost in the producer", "{record}", dropped),
        )
        metrics = [
            Metric(name, text, unit, Sum(points, cumulative, is_monotonic=True))
            for name, text, unit, points in sums
            if points
        ]
        if latency:
            histograms = ExponentialHistogram(latency, cumulative)
            metrics.append(Metric(semconv.E2E_LATENCY, "Latency of all calls from end to end", "s", histograms))
        attributes = ProcessResource({**resource, semconv.SERVICE_INSTANCE: instance})
        found.append(ResourceMetrics(attributes, [ScopeMetrics(SCOPE, metrics, "")], ""))
    return MetricsData(found)


def _series(line: Totals, labels: Mapping[str, str]) -> dict[str, Any]:
    series = {semconv.PIPELINE: line.pipeline, semconv.SOURCE: line.source, semconv.STRATUM: line.stratum}
    return {
        "attributes": {**series, **labels},
        "start_time_unix_nano": nanoseconds(line.started),
        "time_unix_nano": nanoseconds(line.ts),
    }


def _histogram(line: Totals, histogram: Mapping[int, int]) -> ExponentialHistogramDataPoint:
    # The sum is computed from the middle of each bucket and exact within 0.8 %.
    seconds = {bucket_value(index) / _MILLISECONDS: n for index, n in histogram.items()}
    # The bucket (2^(i/2^scale), 2^((i+1)/2^scale)] of the OpenTelemetry metrics data model.
    counts = {math.ceil(math.log2(value) * 2**SCALE) - 1: n for value, n in seconds.items() if value}
    first, last = (min(counts), max(counts)) if counts else (0, -1)
    return ExponentialHistogramDataPoint(
        **_series(line, {}),
        count=sum(histogram.values()),
        sum=math.fsum(value * n for value, n in seconds.items()),
        scale=SCALE,
        zero_count=histogram.get(NOT_POSITIVE, 0),
        positive=Buckets(first, [counts.get(index, 0) for index in range(first, last + 1)]),
        negative=Buckets(0, []),
        flags=0,
        min=min(seconds),
        max=max(seconds),
    )


def record_span(record: Record, resource: Resource) -> tuple[ReadableSpan, int]:
    """The span of a record, and its approximate size in bytes.

    It carries the record as one JSON attribute: it is complete by itself, no limit on the number of attributes can cut
    a document off, and one attribute costs a tenth of forty. Beside it are attributes that backends filter by, and
    those by which they show questions and answers. Every text of the span is one of the record, so what can be encoded
    as JSON can be encoded as attributes.

    Raises:
        Exception: A field cannot be written: a lone surrogate, a number that is not finite.
    """
    line = encode(record)[:-1].decode()
    pipeline = record.pipeline or constants.DEFAULT_PIPELINE
    attributes: dict[str, str | bool | float] = {
        semconv.RAGMON_CONTRACT_VERSION: str(constants.CONTRACT_VERSION),
        semconv.RAGMON_RECORD: line,
        semconv.RAGMON_OK: not record.error,
        semconv.RAGMON_PROBABILITY: 1.0 if record.sampling is None else float(record.sampling.p),
        semconv.OPERATION: semconv.INVOKE_WORKFLOW,
        semconv.WORKFLOW_NAME: pipeline,
    }
    if record.qid is not None:
        attributes[semconv.RAGMON_QID] = record.qid
    if record.error:
        attributes[semconv.ERROR_TYPE] = record.error
    claim = None if record.answer_json is None else record.answer_json.claim
    if record.q is not None:
        attributes[semconv.INPUT_VALUE] = record.q
        attributes[semconv.INPUT_MESSAGES] = _messages("user", record.q)
    if claim is not None:
        attributes[semconv.OUTPUT_VALUE] = claim
        attributes[semconv.OUTPUT_MESSAGES] = _messages("assistant", claim, finish_reason="stop")
    if record.q is not None or claim is not None:
        attributes[semconv.SPAN_KIND] = semconv.CHAIN
    end = time() if record.ts is None else record.ts
    seconds = 0.0 if record.latency_ms is None else (record.latency_ms.total or 0.0) / _MILLISECONDS
    span = new_span(
        f"{semconv.INVOKE_WORKFLOW} {pipeline}",
        resource,
        attributes,
        (nanoseconds(max(0.0, end - seconds)), nanoseconds(end)),
        trace=trace_id(record.trace_id),
        parent=span_id(record.parent_span_id),
        status=_FAILED if record.error else _UNSET,
    )
    return span, len(line)


def _messages(role: str, text: str, **fields: str) -> str:
    message = {"role": role, "parts": [{"type": "text", "content": text}], **fields}
    return msgspec.json.encode([message]).decode()


JSON: Final = "application/json"
REQUEST_SIZE: Final = 2 << 20
"""Bytes of records after which a new request is started; receivers accept at least 4 MiB."""
Item = TypeVar("Item")
AnyExporter = TypeVar("AnyExporter", OTLPSpanExporter, OTLPMetricExporter)


def exporter(kind: Callable[..., AnyExporter], signal: str, session: OtlpSession) -> AnyExporter:
    """An exporter of OpenTelemetry that sends through a session, whatever the application's variables say."""
    later: dict[str, Any] = {"meter_provider": NoOpMeterProvider(), "max_request_size": 0}  # since 1.42 and since 1.45
    known = signature(kind).parameters
    with apart(session):  # it complains of variables that are not for it
        return kind(
            endpoint=session.address(signal),
            headers={"User-Agent": "ragmon"},
            timeout=int(TIMEOUT),
            compression=Compression.NoCompression,
            session=session,
            **{name: value for name, value in later.items() if name in known},
        )


class OtlpExporter:
    """Exports records as spans and totals as metrics over OTLP/HTTP.

    It exports records as they are: text that must not leave the process has to be removed before.

    Args:
        receiver: A session with the receiver, or its base address, `http://host:port`. One call of `deliver` or
            `report` takes no longer than the session's timeout, retries included.
        resource: Attributes of the process: `service.name`, `service.instance.id` and the like.
        metrics: A session with the receiver of totals, if that is another one.

    >>> receiver = OtlpSession("http://127.0.0.1:9", timeout=0.05)
    >>> sink = OtlpExporter(receiver, resource={"service.name": "docs"})
    >>> sink.deliver([Record(qid="a")])
    {'export_failed': 1}
    """

    def __init__(
        self,
        receiver: OtlpSession | str,
        *,
        resource: Mapping[str, str],
        metrics: OtlpSession | None = None,
    ) -> None:
        self._session = OtlpSession(receiver) if isinstance(receiver, str) else receiver
        self._metrics_session = metrics or self._session
        self._spans = exporter(OTLPSpanExporter, "traces", self._session)
        self._metrics = exporter(OTLPMetricExporter, "metrics", self._metrics_session)
        self._resource = ProcessResource(resource)

    def deliver(self, records: Sequence[Record]) -> Mapping[str, int]:
        """Send records, in order, from one thread; returns how many were lost, by reason."""
        deadline = monotonic() + self._session.timeout
        lost: Counter[str] = Counter()

        def spans_and_sizes() -> Iterator[tuple[ReadableSpan, int]]:
            for record in records:
                try:
                    span_and_size = record_span(record, self._resource)
                except Exception as error:  # noqa: BLE001 - the other records must be sent
                    warn_once(f"a record could not be sent and is dropped: {error_location(error)}")
                    lost[constants.INVALID_SCHEMA] += 1
                else:
                    yield span_and_size

        for batch in _batches(spans_and_sizes()):
            result = self._session.run(partial(self._spans.export, batch), deadline)
            result.count_lost(lost, len(batch), ExportTraceServiceResponse, "rejected_spans")
        return dict(lost)

    def report(self, totals: Sequence[Totals]) -> bool:
        """Send a producer's totals, without retry: they are cumulative. Returns whether all were accepted."""
        deadline = monotonic() + self._metrics_session.timeout
        try:
            data = metrics_data(totals, self._resource.attributes)
        except Exception as error:  # noqa: BLE001 - the worker's thread must go on
            warn_once(f"totals could not be sent: {error_location(error)}")
            return False
        result = self._metrics_session.run(lambda: self._metrics.export(data), deadline, retry=False)
        return result.reason is None and not result.rejected(ExportMetricsServiceResponse, "rejected_data_points")

    def label(self, labels: Sequence[Label]) -> bool:
        """Send ratings of answers, without retry; returns whether the receiver accepted them: if not, try again.

        Raises:
            RagmonError: It rejected them: only a ragmon server accepts labels.
        """
        deadline = monotonic() + self._session.timeout
        for batch in _batches((encoded, len(encoded)) for encoded in map(msgspec.json.encode, labels)):
            body = b"[%b]" % b",".join(batch)
            result = self._session.deliver("labels", body, deadline, retry=False, kind=JSON)
            if result.reason == constants.EXPORT_REFUSED:
                raise RagmonError("labels were refused", hint="[export] endpoint names a ragmon server")
            if result.reason is not None:
                return False
        return True

    def reset_after_fork(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        self._session.reset_after_fork()

    def close(self) -> None:
        """Abort the running request and send no more; any thread may call it. Records delivered later are lost."""
        self._session.close()
        self._metrics_session.close()


def _batches(sized: Iterable[tuple[Item, int]]) -> Iterator[list[Item]]:
    # No larger than receivers accept.
    batch: list[Item] = []
    size = 0
    for item, length in sized:
        batch.append(item)
        size += length
        if size >= REQUEST_SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_HAS_EVENT_NAME: Final = "event_name" in LogRecord.DESCRIPTOR.fields_by_name
"""Whether the installed messages know the field: those before 1.35 have the attribute only."""
_CARRIER: Final = "ragmon scores"
_CODE: Final = "CODE"
"""OpenInference's kind of a score computed by code, not by a person or a model."""


class ScoreExporter:
    """Sends scores as `gen_ai.evaluation.result` events over OTLP/HTTP.

    Args:
        backend: A session with the backend, or its base address, `http://host:port`.
        resource: Attributes of the scoring process.
        carriers: Also send OpenInference EVALUATOR spans: each has one link, to the scored span.
    """

    def __init__(
        self,
        backend: OtlpSession | str,
        *,
        resource: Mapping[str, str],
        carriers: bool = False,
    ) -> None:
        self._session = OtlpSession(backend) if isinstance(backend, str) else backend
        self._spans = exporter(OTLPSpanExporter, "traces", self._session)
        self._resource = ProcessResource(resource)
        self._carriers = carriers

    def deliver(self, scored: Sequence[Scored]) -> Mapping[str, int]:
        """Send scores; returns how many events and carrier spans were lost, by reason. Called from one thread.

        A trace without a span id gets only the event, as a carrier span must link to a span.
        """
        deadline = monotonic() + self._session.timeout
        lost: Counter[str] = Counter()
        sendable = []
        for trace_scores in scored:
            if trace_id(trace_scores.trace_id) is None:
                lost[constants.INVALID_SCHEMA] += len(trace_scores.scores)
            else:
                sendable.append(trace_scores)
        now = time_ns()
        if events := sum(len(trace_scores.scores) for trace_scores in sendable):
            result = self._session.deliver("logs", self._events(sendable, now), deadline)
            result.count_lost(lost, events, ExportLogsServiceResponse, "rejected_log_records")
        linked = [trace_scores for trace_scores in sendable if span_id(trace_scores.span_id) is not None]
        if self._carriers and linked:
            spans = [_carrier(trace_scores, self._resource, now) for trace_scores in linked]
            result = self._session.run(lambda: self._spans.export(spans), deadline)
            result.count_lost(lost, len(spans), ExportTraceServiceResponse, "rejected_spans")
        return dict(lost)

    def close(self) -> None:
        """Abort the running request and send no more; may be called from any thread."""
        self._session.close()

    def _events(self, scored: Sequence[Scored], now: int) -> bytes:
        # OpenTelemetry's exporter of logs is not a public part of its library.
        request = ExportLogsServiceRequest()
        process = request.resource_logs.add()
        for key, text in (self._resource.attributes or {}).items():
            process.resource.attributes.add(key=key).value.string_value = str(text)
        scope = process.scope_logs.add()
        scope.scope.name, scope.scope.version = SCOPE.name, SCOPE.version or ""
        for trace_scores in scored:
            span = span_id(trace_scores.span_id)
            for name, value, label in trace_scores.scores:
                event = scope.log_records.add(
                    time_unix_nano=now,
                    observed_time_unix_nano=now,
                    severity_number=SeverityNumber.SEVERITY_NUMBER_INFO,
                    trace_id=bytes.fromhex(trace_scores.trace_id),
                    span_id=b"" if span is None else span.to_bytes(8),
                )
                if _HAS_EVENT_NAME:
                    event.event_name = semconv.EVALUATION
                else:
                    event.attributes.add(key="event.name").value.string_value = semconv.EVALUATION
                event.attributes.add(key=semconv.EVALUATION_NAME).value.string_value = name
                event.attributes.add(key=semconv.EVALUATION_SCORE).value.double_value = float(value)
                if label is not None:
                    event.attributes.add(key=semconv.EVALUATION_LABEL).value.string_value = label
        body: bytes = request.SerializeToString()
        return body


def _carrier(trace_scores: Scored, resource: ProcessResource, now: int) -> ReadableSpan:
    # OpenInference requires this form for feedback that comes later.
    attributes: dict[str, str | bool | float] = {semconv.SPAN_KIND: semconv.EVALUATOR, semconv.RAGMON_INTERNAL: True}
    for number, (name, value, label) in enumerate(trace_scores.scores):
        annotation: dict[str, str | float | None] = {
            "name": name,
            "score": float(value),
            "label": label,
            "annotator_kind": _CODE,
        }
        for field, field_value in annotation.items():
            if field_value is not None:
                attributes[f"{semconv.ANNOTATIONS}.{number}.annotation.{field}"] = field_value
    scored = SpanContext(trace_id(trace_scores.trace_id) or 0, span_id(trace_scores.span_id) or 0, is_remote=False)
    return new_span(_CARRIER, resource, attributes, (now, now), links=[Link(scored)])
