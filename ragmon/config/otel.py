"""OpenTelemetry's standard variables of exporters: what `[export] endpoint = "otel"` takes, and nothing else.

Source: OpenTelemetry specification, protocol/exporter. A timeout is in seconds, as OpenTelemetry for Python has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

from ragmon.core.http_client import shown_url, split_url

OTEL: Final = "otel"
"""The endpoint that stands for these variables."""
Signal = Literal["traces", "metrics"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics")
HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header (RFC 9110, section 5.6.2)."""
HEADER_VALUE: Final = re.compile(r"[\t -~]*")
OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding"}
)
"""Headers that say what a request is, in lower case; whoever sends it writes them."""
GRPC: Final = "ragmon exports over HTTP: name the receiver's HTTP port, usually 4318"
COMPRESSIONS: Final = ("none", "gzip", "deflate")
_PREFIX: Final = "OTEL_EXPORTER_OTLP_"
_ENDPOINT: Final = "http://localhost:4318"
_TIMEOUT: Final = 10.0


class WrongVariable(NamedTuple):
    """A variable that cannot be used.

    Attributes:
        name: The variable.
        message: What is wrong with it: "is no time".
        hint: What would be right.
        value: Its value; None if it may be a secret.
    """

    name: str
    message: str
    hint: str
    value: str | None = None


@dataclass(frozen=True)
class OtelReceiver:
    """Where the variables send a signal.

    Attributes:
        url: The address of the signal, with its path.
        headers: Headers of each request.
        variable: The variable that has the headers.
        certificate: A PEM file of certificates to trust; None: those of the system.
        client_certificate: The client's certificate and its key, which is None where it is in the same file.
        compression: One of `COMPRESSIONS`.
        timeout: Seconds.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    variable: str
    certificate: str | None
    client_certificate: tuple[str, str | None] | None
    compression: str
    timeout: float


def otel_receiver(environ: Mapping[str, str], signal: Signal, report: Callable[[WrongVariable], None]) -> OtelReceiver:
    """Where the variables of an environment send a signal; wrong ones are reported.

    Args:
        environ: The environment.
        signal: The signal, whose own variables come before those of all signals.
        report: Called with each problem.
    """
    found = partial(_variable, environ, signal)
    variable, protocol = found("PROTOCOL")
    if protocol.lower() not in ("", "http/protobuf"):
        hint = GRPC if protocol.lower() == "grpc" else "http/protobuf is what ragmon sends"
        report(WrongVariable(variable, "names a protocol that ragmon does not export with", hint, protocol))
    variable, url = found("ENDPOINT")
    try:
        split_url(url or _ENDPOINT)
    except ValueError:
        report(WrongVariable(variable, f"is no address: {shown_url(url)}", f"such as {_ENDPOINT}"))
    if variable == f"{_PREFIX}ENDPOINT":
        url = f"{(url or _ENDPOINT).rstrip('/')}/v1/{signal}"
    headers_variable, headers = found("HEADERS")
    sent = header_pairs(headers)
    if (why := header_problem(sent)) is not None:
        report(WrongVariable(headers_variable, why, "name=value,name=value, percent-encoded"))
        sent = {}
    variable, timeout = found("TIMEOUT")
    seconds = float(timeout) if re.fullmatch(r"\d{1,9}(\.\d+)?", timeout) else 0.0
    if timeout and not seconds:
        report(WrongVariable(variable, "is no time", "seconds, such as 10", timeout))
    variable, name = found("COMPRESSION")
    compression = name.lower() or "none"
    if compression not in COMPRESSIONS:
        report(WrongVariable(variable, "names an unknown compression", " or ".join(COMPRESSIONS), name))
        compression = "none"
    (_, certificate), (_, client), (_, key) = found("CERTIFICATE"), found("CLIENT_CERTIFICATE"), found("CLIENT_KEY")
    return OtelReceiver(
        url,
        sent,
        headers_variable,
        certificate or None,
        (client, key or None) if client else None,
        compression,
        seconds or _TIMEOUT,
    )


def _variable(environ: Mapping[str, str], signal: Signal, name: str) -> tuple[str, str]:
    """A variable that is set, the signal's own before the general one, and its value; that one, empty, if none is."""
    variables = (f"{_PREFIX}{signal.upper()}_{name}", f"{_PREFIX}{name}")
    return next(
        ((known, value) for known in variables if (value := environ.get(known, "").strip())), (variables[1], "")
    )


def address_of(endpoint: str | None, environ: Mapping[str, str]) -> str | None:
    """The base address of an endpoint, which may be that of the variables."""
    if endpoint != OTEL:
        return endpoint
    return otel_receiver(environ, "traces", lambda _: None).url.removesuffix("/v1/traces")


def header_pairs(text: str) -> dict[str, str]:
    """The headers in a variable: name=value, separated by commas, percent-encoded; a name without `=` becomes "".

    >>> header_pairs("api-key=a%20b, x=1")
    {'api-key': 'a b', 'x': '1'}
    """
    pairs = [pair.partition("=") for pair in text.split(",") if pair.strip()]
    return {unquote(name).strip() if equals else "": unquote(value).strip() for name, equals, value in pairs}


def header_problem(headers: Mapping[str, str]) -> str | None:
    """Why headers cannot be sent, without any of their values; None if they can."""
    for name, value in headers.items():
        if not HEADER.fullmatch(name):
            return "has what is no header"
        if name.lower() in OWN_HEADERS:
            return f"has the header {name}, which belongs to the request itself"
        if not HEADER_VALUE.fullmatch(value):
            return f"has a header {name} that is not printable ASCII"
    return None
