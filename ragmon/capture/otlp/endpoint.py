"""Where OTLP is sent, and what stands on every envelope."""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ragmon import version
from ragmon.errors import RagmonError, shorten

PROTOBUF: Final = "application/x-protobuf"
_PRINTABLE: Final = re.compile(r"[!-~]*")


class Endpoint(NamedTuple):
    """A receiver's base address; `/v1/traces` and the like are appended to its path."""

    tls: bool
    host: str
    port: int
    path: str

    @property
    def loopback(self) -> bool:
        """Whether it is this machine, as far as its name tells."""
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
    """Read an address.

    Args:
        text: `http://host:port` or `https://host:port`, with or without a path.

    Raises:
        RagmonError: It is no such address.

    >>> str(parse("https://otel.example/ingest/"))
    'https://otel.example:443/ingest'
    """
    hint = "http://127.0.0.1:4318, or https://host/path; a token goes into a file of its own"
    try:
        found = urlsplit(text.strip())
        host, port = found.hostname or "", found.port
        host.encode("idna")
    except ValueError:
        raise RagmonError(f"the export endpoint is no address: {shorten(text)}", hint=hint) from None
    if "@" in found.netloc:  # what stands before it may be a password, so the address is not shown
        raise RagmonError("the export endpoint names a user", hint=hint)
    known = found.scheme in ("http", "https") and host and not (found.query or found.fragment)
    if not known or not _PRINTABLE.fullmatch(found.path):
        raise RagmonError(f"the export endpoint is no address: {shorten(text)}", hint=hint)
    tls = found.scheme == "https"
    return Endpoint(tls, host, port or (443 if tls else 80), found.path.rstrip("/").removesuffix("/v1/traces"))


def envelope(token: str | None, *, compressed: bool) -> dict[str, str]:
    """The headers of every request.

    Args:
        token: The bearer token; None where the receiver wants none.
        compressed: Bodies are compressed with gzip.

    Raises:
        RagmonError: The token cannot stand in a header.
    """
    headers = {"Content-Type": PROTOBUF, "User-Agent": f"ragmon/{version.current()}"}
    if compressed:
        headers["Content-Encoding"] = "gzip"
    if token is not None:
        word = token.strip()
        if not word or not _PRINTABLE.fullmatch(word):
            raise RagmonError("the export token cannot be sent", hint="one line of printable ASCII without spaces")
        headers["Authorization"] = f"Bearer {word}"
    return headers
