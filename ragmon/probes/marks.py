"""What tells an application that a request is a probe: a trace of its own, and baggage only whoever has the key writes.

The other end reads it: `ragmon.capture.parent`.
"""

from __future__ import annotations

import secrets
from time import time
from urllib.parse import quote

from ragmon.capture.parent import PROBE, QID, TOKEN, sign


def headers(qid: str, probe: str, trace_id: str, key: bytes | None) -> dict[str, str]:
    """The headers of a question that is sent (W3C Trace Context, W3C Baggage).

    Args:
        qid: The question's id.
        probe: The probe's name.
        trace_id: The trace it belongs to, 32 hex digits.
        key: What the application believes; None where it is to believe nothing.

    >>> headers("a b", "support", "0" * 31 + "1", None)["baggage"]
    'ragmon.qid=a%20b,ragmon.probe=support'
    """
    told = {QID: qid, PROBE: probe}
    if key is not None:
        told[TOKEN] = sign(key, int(trace_id, 16), qid, time())
    return {
        "traceparent": f"00-{trace_id}-{secrets.token_hex(8)}-01",
        "baggage": ",".join(f"{name}={quote(value, safe='', errors='replace')}" for name, value in told.items()),
        "Cache-Control": "no-cache",
    }
