"""Network names: the endpoint and headers of OTLP requests, and the check of a request's `Host` header.

The headers name the installed version of ragmon.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Iterable
from datetime import UTC
from importlib.metadata import PackageNotFoundError, version
from ipaddress import ip_address
from math import isnan
from time import time
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ragmon.core.errors import RagmonError, shorten


def current_version() -> str:
    """The installed version; `0+unknown` where the package was never installed."""
    try:
        return version("ragmon")
    except PackageNotFoundError:
        return "0+unknown"


PROTOBUF: Final = "application/x-protobuf"
_PRINTABLE: Final = re.compile(r"[!-~]*")


class Endpoint(NamedTuple):
    """The base address of a receiver; `/v1/traces` and the like are appended to its path."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def loopback(self) -> bool:
        """Whether the name of the host shows that it is this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def parse(text: str) -> Endpoint:
    """Parse an address.

    Args:
        text: `http://host:port` or `https://host:port`, with or without a path.

    Raises:
        RagmonError: The text is no such address.

    >>> str(parse("https://otel.example/ingest/"))
    'https://otel.example:443/ingest'
    """
    hint = "http://127.0.0.1:4318, or https://host/path; a token goes into a file of its own"
    try:
        url = urlsplit(text.strip())
        host, port = url.hostname or "", url.port
        host.encode("idna")
    except ValueError:
        raise RagmonError(f"the export endpoint is no address: {shorten(text)}", hint=hint) from None
    if "@" in url.netloc:  # the part before it may be a password, so the address is not shown
        raise RagmonError("the export endpoint names a user", hint=hint)
    valid = url.scheme in ("http", "https") and host and not (url.query or url.fragment)
    if not valid or not _PRINTABLE.fullmatch(url.path):
        raise RagmonError(f"the export endpoint is no address: {shorten(text)}", hint=hint)
    tls = url.scheme == "https"
    return Endpoint(tls, host, port or (443 if tls else 80), url.path.rstrip("/").removesuffix("/v1/traces"))


def request_headers(token: str | None, *, compressed: bool) -> dict[str, str]:
    """The headers of every request.

    Args:
        token: The bearer token; None where the receiver needs none.
        compressed: Bodies are compressed with gzip.

    Raises:
        RagmonError: The token cannot be sent in a header.
    """
    headers = {"Content-Type": PROTOBUF, "User-Agent": f"ragmon/{current_version()}"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    if token is not None:
        bare_token = token.strip()
        if not bare_token or not _PRINTABLE.fullmatch(bare_token):
            raise RagmonError("the export token cannot be sent", hint="one line of printable ASCII without spaces")
        headers["Authorization"] = f"Bearer {bare_token}"
    return headers


HINT: Final = 'ask for an address or localhost, or name it in the configuration: `[serve] hosts = ["ragmon.example"]`'
"""The hint for a client that used a host name the server does not accept."""


def own_names(configured: Iterable[str]) -> frozenset[str]:
    """The host names a server accepts: the configured ones and the host name of this machine.

    Args:
        configured: Host names without a port, in lower case.
    """
    return frozenset({socket.gethostname().lower(), *configured})


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a server accepts a host: an IP address, localhost (`is_ip_or_localhost`), or one of its names.

    Args:
        host: The value of the `Host` header.
        names: Of `own_names`.

    >>> is_known("Ragmon:9464", {"ragmon"}), is_known("rebound.example", {"ragmon"})
    (True, False)
    """
    return is_ip_or_localhost(host) or _name(host).lower().removesuffix(".") in names


def is_ip_or_localhost(host: str) -> bool:
    """Whether a host is an IP address or localhost, with or without a port.

    Any other name may belong to an attacker who lets it resolve to this machine (DNS rebinding).

    Args:
        host: The value of the `Host` header.

    >>> [is_ip_or_localhost(host) for host in ("127.0.0.1:9464", "[::1]", "localhost", "ragmon.example")]
    [True, True, True, False]
    """
    name = _name(host)
    try:
        ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


def _name(host: str) -> str:
    """A host without its port."""
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def retry_after(text: str | None) -> float | None:
    """Seconds of a `Retry-After` header, given as a number or a date; None if it is missing or not valid.

    A number that is too large for a double is infinite: whoever waits has a limit.

    Source: RFC 9110, section 10.2.3.

    >>> retry_after("1.5"), retry_after("-3"), retry_after("soon")
    (1.5, 0.0, None)
    """
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        from email.utils import parsedate_to_datetime  # noqa: PLC0415 - a date is rare, and the command line imports this

        try:
            moment = parsedate_to_datetime(text)
        except ValueError:
            return None
        seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - time()
    return None if isnan(seconds) else max(0.0, seconds)
