"""URLs, hosts and ports: read, checked, and shown without a password."""

from __future__ import annotations

import re
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from ragmon.core.errors import RagmonError, shorten

_PRINTABLE: Final = re.compile(r"[!-~]+")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class Url(NamedTuple):
    """An http or https URL, without its fragment and without the name and password of a user.

    Attributes:
        scheme: `http` or `https`.
        host: Name or address of the host, in lower case, without brackets.
        port: The port; the scheme's own where the URL has none.
        path: The path; "" if there is none.
        query: The query, without its question mark; "" if there is none.
        has_user: The URL names a user, perhaps with a password.
    """

    scheme: str
    host: str
    port: int
    path: str = ""
    query: str = ""
    has_user: bool = False

    @property
    def origin(self) -> tuple[str, str, int]:
        """What a key or a text may be sent to (RFC 6454, section 4)."""
        return self[:3]

    @property
    def authority(self) -> str:
        """Host and port, as messages show them."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The target of a request (RFC 9112, section 3.2.1)."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def is_loopback(self) -> bool:
        """Whether the name of the host shows that it is this machine."""
        if self.host == "localhost" or self.host.endswith(".localhost"):
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path}{f'?{self.query}' if self.query else ''}"


def split_url(text: str) -> Url:
    """Read a URL, whatever its path and its query are.

    Raises:
        ValueError: It is no http or https URL, or its host or port cannot exist.

    >>> split_url("http://me:secret@[::1]/docs?page=2#top")
    Url(scheme='http', host='::1', port=80, path='/docs', query='page=2', has_user=True)
    """
    parts = urlsplit(text)
    host = parts.hostname or ""
    if parts.scheme not in _DEFAULT_PORTS or not _PRINTABLE.fullmatch(host.encode("idna").decode()):
        raise ValueError("no http or https URL")
    port = parts.port or _DEFAULT_PORTS[parts.scheme]
    return Url(parts.scheme, host, port, parts.path, parts.query, "@" in parts.netloc)


def may_hold_password(text: str) -> bool:
    """Whether a text holds what may be a URL with a password, with or without a scheme."""
    return ":" in text and "@" in text


def shown_url(text: str) -> str:
    """What a message shows of a text that should be a URL."""
    return "what may hold a password is not shown" if "@" in text else shorten(text)


def parse_url(text: str, name: str, *, hint: str, base: bool = False) -> Url:
    """Parse the URL of a server that requests are sent to.

    Args:
        text: The URL.
        name: What it is, for messages: `the target`.
        hint: The hint of the errors.
        base: Paths are appended to the URL: it has neither query nor fragment, and a slash at its end is left out.

    Raises:
        RagmonError: The text is no such URL, or it names a user. What may be a password is not shown.

    >>> str(parse_url("https://otel.example/ingest/", "the endpoint", hint="", base=True))
    'https://otel.example:443/ingest'
    """
    try:
        url = split_url(text.strip())
    except ValueError:
        url = None
    if url is not None and url.has_user:
        raise RagmonError(f"{name} names a user", hint=hint)
    if url is None or not _PRINTABLE.fullmatch(url.target) or (base and ("?" in text or "#" in text)):
        raise RagmonError(f"{name} is no address: {shown_url(text)}", hint=hint)
    return url._replace(path=url.path.rstrip("/")) if base else url


HINT: Final = 'ask for an address or localhost, or name it in the configuration: `[serve] hosts = ["ragmon.example"]`'
"""The hint for a client that used a host name the server does not accept."""


def own_names(configured: Iterable[str]) -> frozenset[str]:
    """The host names a server accepts: the configured ones and the host name of this machine.

    Args:
        configured: Host names without a port, in lower case.
    """
    return frozenset({socket.gethostname().lower(), *configured})


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a server accepts a host: an IP address, localhost (`is_ip_or_localhost`), or a name of its own.

    Args:
        host: The value of the `Host` header.
        names: Of `own_names`.

    >>> is_known("Ragmon:9464", {"ragmon"}), is_known("rebound.example", {"ragmon"})
    (True, False)
    """
    return is_ip_or_localhost(host) or _without_port(host).lower().removesuffix(".") in names


def is_ip_or_localhost(host: str) -> bool:
    """Whether a host is an IP address or localhost, with or without a port.

    Any other name may belong to an attacker who lets it resolve to this machine (DNS rebinding).

    Args:
        host: The value of the `Host` header.

    >>> [is_ip_or_localhost(host) for host in ("127.0.0.1:9464", "[::1]", "localhost", "ragmon.example")]
    [True, True, True, False]
    """
    name = _without_port(host)
    try:
        ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True


def _without_port(host: str) -> str:
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


@dataclass(frozen=True)
class Address:
    """The address a server listens on; port 0 means any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only clients on this machine can connect."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"
