"""Whether a reply came from a cache, as far as caches say so themselves."""

from __future__ import annotations

import re
from email.message import Message
from typing import Final

_HIT: Final = re.compile(r"(?:\b|_)hit\b", re.IGNORECASE)
"""`HIT`; of Squid and Akamai `TCP_HIT` and `TCP_MEM_HIT`."""
_SAYS: Final = ("X-Cache", "X-Cache-Status", "CF-Cache-Status", "X-Proxy-Cache", "X-Varnish-Cache", "Cache-Status")
"""Where Varnish, Fastly, CloudFront, nginx, Cloudflare and RFC 9211 caches say it."""


def is_from_cache(headers: Message) -> bool:
    """Whether a cache says that it answered.

    An `Age` says so too (RFC 9111, section 5.1: the reply was not made for this request), but for 0: Varnish and what
    is built on it put that on replies just fetched.

    Args:
        headers: Of the reply.

    >>> found = Message(); found["X-Cache"] = "MISS, HIT"
    >>> is_from_cache(found), is_from_cache(Message())
    (True, False)
    """
    if any(age.strip() != "0" for age in headers.get_all("Age", ())):
        return True
    return any(_HIT.search(value) for name in _SAYS for value in headers.get_all(name, ()))
