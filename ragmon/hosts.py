"""By which name a machine is asked: what a request's `Host` says about who sent it."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from ipaddress import ip_address
from typing import Final

HINT: Final = 'ask for an address or localhost, or name it in the configuration: `[serve] hosts = ["ragmon.example"]`'
"""What somebody is told who asks for another name."""


def own_names(configured: Iterable[str]) -> frozenset[str]:
    """The names a server may be asked by: those of its configuration, and the one this machine calls itself.

    Args:
        configured: Host names without a port, in lower case.
    """
    return frozenset({socket.gethostname().lower(), *configured})


def is_known(host: str, names: Collection[str]) -> bool:
    """Whether a server may be asked by a host: a plain one (`is_plain`), or one of its names.

    Args:
        host: As the header says it.
        names: Of `own_names`.

    >>> is_known("Ragmon:9464", {"ragmon"}), is_known("rebound.example", {"ragmon"})
    (True, False)
    """
    return is_plain(host) or _name(host).lower().removesuffix(".") in names


def is_plain(host: str) -> bool:
    """Whether a host is an address or localhost, with or without a port.

    A name somebody else owns may lead to this machine (DNS rebinding); these may not.

    Args:
        host: As the header says it.

    >>> is_plain("127.0.0.1:9464"), is_plain("[::1]"), is_plain("localhost"), is_plain("ragmon.example")
    (True, True, True, False)
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
