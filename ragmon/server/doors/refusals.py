"""Why a door turns a request away before anybody looks at what it says."""

from __future__ import annotations

from typing import Final

from ragmon.server.desk import RefusedError

UNAUTHORISED: Final = "unauthorised"
FORBIDDEN: Final = "forbidden"
"""A web page asks, or the request was meant for another host."""
RATE_LIMITED: Final = "rate_limited"
"""There is too much to do at the moment."""
DECOMPRESS_LIMIT: Final = "decompress_limit"
TIMEOUT: Final = "timeout"
BAD_CONTENT_TYPE: Final = "bad_content_type"
BAD_CONTENT_ENCODING: Final = "bad_content_encoding"
BAD_HTTP: Final = "bad_http"
"""What came is no HTTP/1.1."""
NO_MESSAGE: Final = "no_message"
"""A call that came to its end without one: it was larger than gRPC reads, or was never sent."""
UNKNOWN_PATH: Final = "unknown_path"
BAD_METHOD: Final = "bad_method"


class TurnedAwayError(RefusedError):
    """A request that the door itself does not take: it is counted by the desk's `refuse`.

    Args:
        status: The HTTP status.
        reason: What it is counted as.
        message: What is wrong.
        hint: What would be right.
        retry_after: Seconds after which it may be sent again; None where that would be in vain.
    """

    def __init__(
        self, status: int, reason: str, message: str, *, hint: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(status, reason, message, retry_after)
        self.hint = hint
