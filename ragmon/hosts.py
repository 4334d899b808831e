"""By which name a machine is asked: what a request's `Host` says about who sent it."""

from __future__ import annotations

from ipaddress import ip_address


def is_plain(host: str) -> bool:
    """Whether a host is an address or localhost, with or without a port.

    A name somebody else owns may lead to this machine (DNS rebinding); these may not.

    Args:
        host: As the header says it.

    >>> is_plain("127.0.0.1:9464"), is_plain("[::1]"), is_plain("localhost"), is_plain("ragmon.example")
    (True, True, True, False)
    """
    name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
    try:
        ip_address(name)
    except ValueError:
        return name.lower() == "localhost"
    return True
