"""One record on its way: sent as the application sends its own, and why that fails where it does."""

from __future__ import annotations

import logging
import re
import secrets
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from http import HTTPStatus
from typing import Final

from ragmon.checkup.check import Check
from ragmon.config.settings import Settings
from ragmon.core import constants
from ragmon.core.errors import RagmonError
from ragmon.core.record import Answer, Latency, Record, Sampling
from ragmon.monitor.build import Redactions
from ragmon.monitor.exporting import Redacting, server
from ragmon.remote import Place

PIPELINE: Final = "ragmon-doctor"
"""Nobody's pipeline."""
TAGS: Final = {"ragmon": "doctor"}
NAME: Final = "exporter"
_IN_NO_ESTIMATE: Final = Sampling(audit=False, stratum=constants.UNKNOWN_WEIGHT)
"""Such a record is counted and scored, and no metric, gate or alarm reads it."""
_HANDSHAKE: Final = 3.0
"""Seconds to wait for an answer to a TLS handshake."""
_STATUS: Final = re.compile(r"status (\d{3})")
_HINTS: Final[dict[int, str]] = {
    HTTPStatus.UNAUTHORIZED: "`[serve] token_file` here and there must hold the same token",
    HTTPStatus.FORBIDDEN: "ask for an address or localhost, or give both sides a token; a proxy may refuse it too",
    HTTPStatus.NOT_FOUND: "`[export] endpoint` is the base address of an OTLP/HTTP receiver, without /v1/traces",
    HTTPStatus.METHOD_NOT_ALLOWED: "this is a web server and no OTLP/HTTP receiver: correct `[export] endpoint`",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "a record of 1 KB is too large: raise the limit of the proxy in between",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "it takes no protobuf, or no gzip: name a receiver of OTLP over HTTP",
    HTTPStatus.TOO_MANY_REQUESTS: "it has too much to do: give it more, or sample less",
    HTTPStatus.SERVICE_UNAVAILABLE: "it can write nothing at the moment: its log and `/readyz` say why",
}


def trial() -> Record:
    """A healthy answer that says nothing of anybody, with an id and a build of its own."""
    return Record(
        v=constants.CONTRACT_VERSION,
        trace_id=secrets.token_hex(16),
        ts=time.time(),
        pipeline=PIPELINE,
        source=constants.PROBE,
        build=f"doctor-{secrets.token_hex(4)}",
        retrieved_ids=["ragmon-doctor"],
        answer_json=Answer(claim="yes", citations=["ragmon-doctor"]),
        latency_ms=Latency(total=1.0),
        sampling=_IN_NO_ESTIMATE,
        tags=dict(TAGS),
    )


def send(settings: Settings, place: Place, record: Record) -> Check:
    """Send a record with the configured token through the exporter that applications send through.

    Args:
        settings: The configuration, with an endpoint.
        place: The endpoint.
        record: What is sent.
    """
    try:
        sink = server(settings, cache(lambda: Redactions(settings)))
    except RagmonError as error:
        return Check(NAME, ok=False, told=f"not tried: {error}", hint=error.hint)
    assert isinstance(sink, Redacting)  # noqa: S101 - there is an endpoint
    with _heard() as said, closing(sink):
        lost = sink.deliver([record])
    if not lost:
        return Check(NAME, ok=True, told=f"{place} took a trace")
    why = " ".join(said) or f"{place} said no to the record itself ({', '.join(lost)})"
    return Check(NAME, ok=False, told=why, hint=_hint(why, place))


def _hint(why: str, place: Place) -> str:
    """What would be right."""
    found = _STATUS.search(why)
    if found is not None:
        return _HINTS.get(int(found[1]), "its log says why")
    if "does not answer in time" in why:
        return "its log; or something in between takes requests and passes none on"
    if "certificate is not trusted" in why:
        return "SSL_CERT_FILE names a file of the certificates to trust, for this command as for the application"
    if place.tls:
        return "" if _speaks_tls(place) else "it does not speak TLS: write http:// in `[export] endpoint`"
    return (
        "it speaks TLS: write https:// in `[export] endpoint`" if _speaks_tls(place) else "correct `[export] endpoint`"
    )


def _speaks_tls(place: Place) -> bool:
    """Whether it answers a TLS handshake; whose certificate it has does not matter here."""
    asking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    asking.check_hostname, asking.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((place.host, place.port), timeout=_HANDSHAKE) as plain, asking.wrap_socket(plain):
            return True
    except OSError:
        return False


class _Listener(logging.Handler):
    """Keeps what is said.

    Args:
        said: Where.
    """

    def __init__(self, said: list[str]) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a message."""
        self._said.append(record.getMessage())


@contextmanager
def _heard() -> Iterator[list[str]]:
    """What the exporter warns of inside the block: it tells its log alone why it fails."""
    said: list[str] = []
    listener, log = _Listener(said), logging.getLogger("ragmon")
    log.addHandler(listener)
    try:
        yield said
    finally:
        log.removeHandler(listener)
