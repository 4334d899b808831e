"""The embedded monitor: scores records in one process, judges gates, and serves `/metrics`.

The same port takes `POST /v1/ack`, which acknowledges an alarm. It is the only request that changes anything, and it is
accepted from this machine alone.
"""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from threading import Lock, Thread
from time import time
from types import TracebackType
from typing import Any, Final, Self
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app, start_http_server
from pydantic_core import PydanticCustomError

from ragmon.alarms import AlarmTransition
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.config.types import Address
from ragmon.config.types import address as parse_address
from ragmon.core import constants
from ragmon.core.constants import STEP
from ragmon.core.errors import RagmonError, UnknownNameError, shorten
from ragmon.core.net import is_ip_or_localhost
from ragmon.core.policy import Outcome
from ragmon.core.record import Label, Record, Totals
from ragmon.export.prometheus import Collector
from ragmon.export.state import MonitorSnapshot, SdkStats, StageCounters
from ragmon.monitor.engine import Engine

ACKS_PATH: Final = "/v1/ack"
LONGEST: Final = 64 << 10
"""Maximum bytes of a request body."""
_JSON: Final = "application/json"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Acknowledge = Callable[[str, str, str], bool]
"""Alarm, pipeline and reason; returns whether the alarm fired."""


class _RejectedError(Exception):
    """A request that is rejected.

    Args:
        status: The HTTP status.
        message: What is wrong.
        hint: What would be right.
    """

    def __init__(self, status: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.hint = hint


def with_acks(app: App, acknowledge: Acknowledge) -> App:
    """A WSGI application that handles acknowledgements, and passes all other requests to another application.

    It accepts them only from this machine, and only as JSON, which browsers do not send across sites unasked.

    Args:
        app: The other application.
        acknowledge: Silences an alarm.
    """

    def front(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != ACKS_PATH:
            return app(environ, start_response)
        try:
            alert, pipeline, reason = _parse_ack(environ)
            body, status = {"fired": acknowledge(alert, pipeline, reason)}, "200 OK"
        except UnknownNameError as error:
            body, status = _error_body(error, error.hint), "404 Not Found"
        except _RejectedError as error:
            body, status = _error_body(error, error.hint), error.status
        start_response(status, [("Content-Type", _JSON)])
        return [json.dumps(body).encode()]

    return front


def _error_body(error: Exception, hint: str) -> dict[str, Any]:
    return {"error": str(error), "hint": hint}


def _parse_ack(environ: dict[str, Any]) -> tuple[str, str, str]:
    """Alarm, pipeline and reason of a request.

    Raises:
        _RejectedError: It is no acknowledgement, or not from this machine.
    """
    if environ["REQUEST_METHOD"] != "POST":
        raise _RejectedError("405 Method Not Allowed", "acknowledgements are POSTed", "`ragmon ack` does")
    if not _is_loopback(environ.get("REMOTE_ADDR", "")):
        raise _RejectedError(
            "403 Forbidden", "acknowledgements are taken from this machine alone", "`ragmon ack` there"
        )
    if not _is_local_host(environ):
        raise _RejectedError("403 Forbidden", "a web page asks", "`ragmon ack` from a terminal")
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != _JSON:
        raise _RejectedError("415 Unsupported Media Type", "an acknowledgement is JSON", f"Content-Type: {_JSON}")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > LONGEST:
        raise _RejectedError("413 Content Too Large", f"Content-Length is {length[:20]}", f"at most {LONGEST}")
    try:
        data = json.loads(environ["wsgi.input"].read(int(length)))
        fields = data["gate"], data.get("pipeline", constants.DEFAULT_PIPELINE), data["reason"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back"}'
        raise _RejectedError("400 Bad Request", "this is no acknowledgement", hint) from error
    if not all(isinstance(field, str) and field for field in fields):
        raise _RejectedError("400 Bad Request", "gate, pipeline and reason are texts", "none of them empty")
    return fields


def _is_local_host(environ: dict[str, Any]) -> bool:
    """Whether there is no Origin and the Host is local; web pages send their own (CSRF, DNS rebinding)."""
    return "HTTP_ORIGIN" not in environ and is_ip_or_localhost(str(environ.get("HTTP_HOST", "")))


def _is_loopback(address: str) -> bool:
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(ip, "ipv4_mapped", None)
    return bool((mapped or ip).is_loopback)


def split(name: str, usual: str = constants.DEFAULT_PIPELINE) -> tuple[str, str]:
    """The alarm and the pipeline of `[PIPELINE/]ALARM`.

    Args:
        name: The name as typed.
        usual: The pipeline if none is named.

    Raises:
        RagmonError: One of them is missing.

    >>> split("support/precision"), split("precision")
    (('precision', 'support'), ('precision', 'default'))
    """
    pipeline, slash, alert = name.rpartition("/")
    if not alert or (slash and not pipeline):
        raise RagmonError(f"{name!r} names no alarm", hint="[PIPELINE/]ALARM, as `ragmon_gate_alarm` shows them")
    return alert, pipeline or usual


REQUEST_TIMEOUT: Final = 10.0
"""Seconds within which a client must send its request."""

ANSWERS: Final = 10_000
"""Answers that are kept, without their texts, until a label comes: an embedded monitor has no journal."""


class Monitor:
    """Capture -> score -> `/metrics`, without a server or a database.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        clock: Seconds since the epoch.

    Attributes:
        settings: The configuration in force.
        captured: Reads the SDK statistics, where capture runs in this process and sends its records here.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is broken.

    Example:
        >>> from ragmon.core.record import Answer, Record
        >>> from ragmon.config.load import defaults
        >>> monitor = Monitor(defaults())
        >>> monitor.submit(Record(source="live", answer_json=Answer(claim="not in context", citations=[])))
        >>> monitor.reading().books["score"].scored
        1
    """

    def __init__(self, config: str | Path | Settings | None = None, *, clock: Callable[[], float] = time) -> None:
        self.settings = config if isinstance(config, Settings) else load(config)
        self.captured: Callable[[], SdkStats] | None = None
        self._clock = clock
        self._engine = Engine(self.settings, answers=ANSWERS)
        self._lock = Lock()
        self._received = self._changes = 0
        self._server: tuple[WSGIServer, Thread] | None = None

    def submit(self, record: Record) -> None:
        """Score a record. This is the method of an exporter: called off the request path; failures are counted."""
        with self._lock:
            self._received += 1
            self._engine.observe(record, self._clock())

    def report(self, totals: Sequence[Totals]) -> bool:
        """Count a producer's totals of all its calls: the weights of the strata. Returns True: they are accepted."""
        with self._lock:
            self._changes += 1
            for line in totals:
                self._engine.report(line, self._clock())
        return True

    def label(self, labels: Sequence[Label]) -> bool:
        """Process labels. Returns True: they are accepted; their results are counted."""
        with self._lock:
            self._changes += 1
            for line in labels:
                self._engine.take(line, self._clock())
        return True

    def reading(self) -> MonitorSnapshot:
        """The current state: metrics of every window, gates, alarms and stage counters."""
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            engine, now = self._engine, self._clock()
            engine.advance(now)
            books = {"score": StageCounters(self._received, engine.scorer.scored, dropped=dict(engine.scorer.dropped))}
            if self.captured is not None:
                books["capture"] = captured.books
            return engine.reading(now, books, engine.within(captured))

    def _cache_key(self) -> object:
        """A key that changes whenever the result of `reading` may change."""
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            self._engine.advance(self._clock())
            closed = self._engine.alarms.steps.closed
            return self._changes, self._received, int(self._clock()) // STEP, closed, captured

    def outcomes(self) -> list[Outcome]:
        """The current gate outcomes."""
        return list(self.reading().outcomes)

    def edges(self) -> list[AlarmTransition]:
        """The latest alarm transitions, in the order of time."""
        with self._lock:
            self._engine.advance(self._clock())
            return list(self._engine.edges)

    def acknowledge(self, alert: str, pipeline: str = constants.DEFAULT_PIPELINE, reason: str = "") -> bool:
        """Silence an alarm that fires, and restart its detector.

        Args:
            alert: The alarm's name, as `ragmon_gate_alarm` shows it.
            pipeline: The alarm's pipeline.
            reason: Why; it is logged.

        Returns:
            Whether it fired.

        Raises:
            UnknownNameError: There is no such alarm, or the pipeline has had no record.
        """
        with self._lock:
            self._changes += 1
            self._engine.advance(self._clock())
            return self._engine.acknowledge(pipeline, alert, reason)

    def digest(self) -> str:
        """The fingerprint of everything counted; a replay of the same records has the same."""
        with self._lock:
            return self._engine.scorer.state.digest()

    def start(self, address: str | None = None) -> Self:
        """Serve `/metrics`; does nothing if it is served already.

        Args:
            address: `host:port`, port 0 for any free one; default: `[serve] admin`.

        Raises:
            RagmonError: The address is invalid, or cannot be bound.
        """
        if self._server is None:
            listen_address = self.settings.serve.admin if address is None else _address(address)
            registry = CollectorRegistry()
            registry.register(Collector(self.reading, self._cache_key))
            try:
                self._server = start_http_server(listen_address.port, listen_address.host, registry)
                _set_timeout(self._server[0])
                self._server[0].set_app(with_acks(make_wsgi_app(registry), self.acknowledge))
            except OSError as error:
                in_use = error.errno == errno.EADDRINUSE
                hint = "another process has the port" if in_use else "an address of this machine that you may use"
                raise RagmonError(
                    f"/metrics cannot be served on {listen_address} ({error.strerror or error})",
                    hint=f"{hint}: change `[serve] admin`",
                ) from error
        return self

    @property
    def address(self) -> str | None:
        """The `host:port` where `/metrics` is served; None while it is not."""
        if self._server is None:
            return None
        host, port = self._server[0].server_address[:2]
        return str(Address(str(host), port))

    def stop(self) -> None:
        """Stop serving; the counts stay readable."""
        if self._server is not None:
            server, thread = self._server
            self._server = None
            server.shutdown()
            server.server_close()
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _set_timeout(server: WSGIServer) -> None:
    """Set a timeout: close the connection of a client that sends half a request and then nothing."""
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Patient", (handler,), {"timeout": REQUEST_TIMEOUT})


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except PydanticCustomError as error:
        hint = (error.context or {}).get("hint", "")
        raise RagmonError(f"/metrics cannot be served on {shorten(text)}", hint=hint) from None
