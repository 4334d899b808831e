"""Probes that come from elsewhere: a request whose baggage names a gold question, and proves that it may.

Anybody can write baggage. What a stranger calls a probe would vanish from the totals of users, and its text would be
kept; so it is believed only with a code over its trace, its question and its time, under a key both ends have.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Final

QID: Final = "ragmon.qid"
PROBE: Final = "ragmon.probe"
TOKEN: Final = "ragmon.token"  # noqa: S105 - the name of one
VALID: Final = 300.0
"""Seconds for which a code is believed, in either direction: clocks differ."""
_LONGEST: Final = 512
"""Characters of a question's id."""


def sign(key: bytes, trace_id: int, qid: str, at: float) -> str:
    """The code that proves a probe (HMAC-SHA256, RFC 2104).

    Args:
        key: The key both ends have.
        trace_id: The trace it is for: it proves no other.
        qid: The gold question.
        at: When it is sent, seconds since the epoch.

    >>> sign(b"key", 1, "q", 1e9).partition("-")[0] == format(10**9, "x")
    True
    """
    import hmac  # noqa: PLC0415 - most processes never see a probe

    moment = int(at)
    told = "\0".join(("ragmon.probe", f"{trace_id:032x}", f"{moment:x}", qid))
    return f"{moment:x}-{hmac.new(key, told.encode('utf-8', 'surrogatepass'), 'sha256').hexdigest()}"


def asked(key: bytes, trace_id: int) -> str | None:
    """The gold question that the request which runs here asks; None where it is a user's, as far as is proved.

    Args:
        key: The key both ends have.
        trace_id: The trace it runs in.
    """
    module = sys.modules.get("opentelemetry.baggage")
    carried: Mapping[str, Any] = {} if module is None else module.get_all()
    qid, code = carried.get(QID), carried.get(TOKEN)
    if not (isinstance(qid, str) and isinstance(code, str)) or not 0 < len(qid) <= _LONGEST:
        return None
    return qid if is_proved(key, trace_id, qid, code) else None


def is_proved(key: bytes, trace_id: int, qid: str, code: str) -> bool:
    """Whether a code is one of this key, trace and question, and not old."""
    import hmac  # noqa: PLC0415 - as above
    from time import time  # noqa: PLC0415 - as above

    try:
        moment = int(code.partition("-")[0], 16)
    except ValueError:
        return False
    fresh = abs(time() - moment) <= VALID
    return fresh and hmac.compare_digest(sign(key, trace_id, qid, moment).encode(), code.encode("utf-8", "replace"))
