"""Whether a redirect may be followed: to the same origin, and nowhere else.

What a judge is sent is text of users and a key. The configured address is the operator's word, loopback and private
networks included; where its server would like to send us is not.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import SplitResult, urljoin, urlsplit

from ragmon.core.constants import JUDGE_ERROR
from ragmon.judges.results import NoJudgementError


class RedirectError(NoJudgementError):
    """A judge's server sends its callers elsewhere."""


class PrivateRedirectError(RedirectError):
    """A judge's server sends its callers into a private network."""


def follow(url: str, location: str) -> str:
    """Where a redirect leads.

    Args:
        url: What was asked.
        location: What the answer names.

    Raises:
        RedirectError: To another origin.
        PrivateRedirectError: To one with an address no stranger could reach.

    >>> follow("https://judge.example/v1/chat", "/v2/chat")
    'https://judge.example/v2/chat'
    """
    try:
        target = urljoin(url, location)
        there, here = urlsplit(target), urlsplit(url)
        same = _origin(there) == _origin(here) and there.username is None
    except ValueError:
        raise RedirectError(JUDGE_ERROR, "its server redirects to what is no address") from None
    if same:
        return target
    if _is_private(there.hostname or ""):
        raise PrivateRedirectError(JUDGE_ERROR, "its server redirects to a private address")
    raise RedirectError(JUDGE_ERROR, "its server redirects to another origin")


def _origin(parts: SplitResult) -> tuple[str, str, int]:
    default = 443 if parts.scheme == "https" else 80
    return parts.scheme, (parts.hostname or "").lower(), parts.port or default


def _is_private(host: str) -> bool:
    try:
        return not ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
