"""`POST /v1/ack`: somebody has seen an alarm. The one thing an embedded monitor lets anybody write, on this machine.

The monitor in one process: records in, gates judged, `/metrics` served.
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
"""Bytes of a request."""
_JSON: Final = "application/json"

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Acknowledge = Callable[[str, str, str], bool]
"""Alarm, pipeline and reason; returns whether the alarm fired."""


class _RefusedError(Exception):
    """A request that is not taken.

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
    """A WSGI application that takes acknowledgements, and leaves everything else to another one.

    It takes them from this machine alone, and only as JSON: a browser does not send that across sites unasked.

    Args:
        app: The other one.
        acknowledge: Silences an alarm.
    """

    def front(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != ACKS_PATH:
            return app(environ, start_response)
        try:
            alert, pipeline, reason = _asked(environ)
            body, status = {"fired": acknowledge(alert, pipeline, reason)}, "200 OK"
        except UnknownNameError as error:
            body, status = _told(error, error.hint), "404 Not Found"
        except _RefusedError as error:
            body, status = _told(error, error.hint), error.status
        start_response(status, [("Content-Type", _JSON)])
        return [json.dumps(body).encode()]

    return front


def _told(error: Exception, hint: str) -> dict[str, Any]:
    return {"error": str(error), "hint": hint}


def _asked(environ: dict[str, Any]) -> tuple[str, str, str]:
    """Alarm, pipeline and reason of a request.

    Raises:
        _RefusedError: It is no acknowledgement, or not from here.
    """
    if environ["REQUEST_METHOD"] != "POST":
        raise _RefusedError("405 Method Not Allowed", "acknowledgements are POSTed", "`ragmon ack` does")
    if not _from_here(environ.get("REMOTE_ADDR", "")):
        raise _RefusedError("403 Forbidden", "acknowledgements are taken from this machine alone", "`ragmon ack` there")
    if not _asked_for_us(environ):
        raise _RefusedError("403 Forbidden", "a web page asks", "`ragmon ack` from a terminal")
    if environ.get("CONTENT_TYPE", "").partition(";")[0].strip() != _JSON:
        raise _RefusedError("415 Unsupported Media Type", "an acknowledgement is JSON", f"Content-Type: {_JSON}")
    length = environ.get("CONTENT_LENGTH") or "0"
    if not length.isdecimal() or int(length) > LONGEST:
        raise _RefusedError("413 Content Too Large", f"Content-Length is {length[:20]}", f"at most {LONGEST}")
    try:
        found = json.loads(environ["wsgi.input"].read(int(length)))
        parts = found["gate"], found.get("pipeline", constants.DEFAULT_PIPELINE), found["reason"]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        hint = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back"}'
        raise _RefusedError("400 Bad Request", "this is no acknowledgement", hint) from error
    if not all(isinstance(part, str) and part for part in parts):
        raise _RefusedError("400 Bad Request", "gate, pipeline and reason are texts", "none of them empty")
    return parts


def _asked_for_us(environ: dict[str, Any]) -> bool:
    """Whether a request was meant for this monitor: a web page's says where it comes from, or asks for its own name."""
    return "HTTP_ORIGIN" not in environ and is_ip_or_localhost(str(environ.get("HTTP_HOST", "")))


def _from_here(address: str) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def split(name: str, usual: str = constants.DEFAULT_PIPELINE) -> tuple[str, str]:
    """The alarm and the pipeline of `[PIPELINE/]ALARM`.

    Args:
        name: What somebody typed.
        usual: The pipeline that is meant where none is named.

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
"""Seconds a client may take to send a request."""

ANSWERS: Final = 10_000
"""Answers that are remembered, without their texts, until somebody labels them: a monitor has no journal."""


class Monitor:
    """Capture -> score -> `/metrics`, without a server or a database.

    Args:
        config: A path of ragmon.toml, settings already loaded, or None for the usual places.
        clock: Seconds since the epoch.

    Attributes:
        settings: The configuration in force.
        captured: Reads what capture counted, where capture runs in this process and sends its records here.

    Raises:
        ConfigError: The configuration is broken.
        GoldError: A gold file is.

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
        """Score a record. This is the sink's one method: called off the request path; what fails is counted."""
        with self._lock:
            self._received += 1
            self._engine.observe(record, self._clock())

    def report(self, totals: Sequence[Totals]) -> bool:
        """Take a producer's counts of all its calls: what every stratum weighs. Returns True: they are taken."""
        with self._lock:
            self._changes += 1
            for line in totals:
                self._engine.report(line, self._clock())
        return True

    def label(self, labels: Sequence[Label]) -> bool:
        """Take what people say of answers. Returns True: it is taken; what became of it is counted."""
        with self._lock:
            self._changes += 1
            for line in labels:
                self._engine.take(line, self._clock())
        return True

    def reading(self) -> MonitorSnapshot:
        """This moment: metrics of every window, gates, and the books."""
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            engine, now = self._engine, self._clock()
            engine.advance(now)
            books = {"score": StageCounters(self._received, engine.scorer.scored, dropped=dict(engine.scorer.dropped))}
            if self.captured is not None:
                books["capture"] = captured.books
            return engine.reading(now, books, engine.within(captured))

    def _moment(self) -> object:
        """What `reading` depends on."""
        captured = SdkStats() if self.captured is None else self.captured()
        with self._lock:
            self._engine.advance(self._clock())
            closed = self._engine.alarms.steps.closed
            return self._changes, self._received, int(self._clock()) // STEP, closed, captured

    def outcomes(self) -> list[Outcome]:
        """The gates at this moment."""
        return list(self.reading().outcomes)

    def edges(self) -> list[AlarmTransition]:
        """The alarms that began or ended lately, in the order of time."""
        with self._lock:
            self._engine.advance(self._clock())
            return list(self._engine.edges)

    def acknowledge(self, alert: str, pipeline: str = constants.DEFAULT_PIPELINE, reason: str = "") -> bool:
        """Silence an alarm that fires, and arm it again.

        Args:
            alert: Its name, as `ragmon_gate_alarm` shows it.
            pipeline: Whose.
            reason: What somebody found.

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
        """Serve `/metrics`; does nothing where it is served already.

        Args:
            address: `host:port`, port 0 for any free one; default: `[serve] admin`.

        Raises:
            RagmonError: It is no address, or nothing can be served there.
        """
        if self._server is None:
            place = self.settings.serve.admin if address is None else _address(address)
            registry = CollectorRegistry()
            registry.register(Collector(self.reading, self._moment))
            try:
                self._server = start_http_server(place.port, place.host, registry)
                _be_patient(self._server[0])
                self._server[0].set_app(with_acks(make_wsgi_app(registry), self.acknowledge))
            except OSError as error:
                taken = error.errno == errno.EADDRINUSE
                hint = "another process has the port" if taken else "an address of this machine that you may use"
                raise RagmonError(
                    f"/metrics cannot be served on {place} ({error.strerror or error})",
                    hint=f"{hint}: change `[serve] admin`",
                ) from error
        return self

    @property
    def address(self) -> str | None:
        """Where `/metrics` is served, `host:port`; None while it is not."""
        if self._server is None:
            return None
        host, port = self._server[0].server_address[:2]
        return str(Address(str(host), port))

    def stop(self) -> None:
        """Stop serving; what was counted stays readable."""
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


def _be_patient(server: WSGIServer) -> None:
    """Hang up on a client that sends half a request and then nothing."""
    handler: Any = server.RequestHandlerClass
    server.RequestHandlerClass = type("Patient", (handler,), {"timeout": REQUEST_TIMEOUT})


def _address(text: str) -> Address:
    try:
        return parse_address(text)
    except PydanticCustomError as error:
        hint = (error.context or {}).get("hint", "")
        raise RagmonError(f"/metrics cannot be served on {shorten(text)}", hint=hint) from None
