"""The parent span of a call, and probes that come from another process.

A request whose baggage names a gold question is a probe only with a valid token: an HMAC over its trace, its question
and its time, under a key both ends have. Baggage alone proves nothing, as any client can write it: a request marked
falsely would be missing in the totals of users, and its text would be kept.

OpenTelemetry is looked up in `sys.modules`, never imported: an application that does not use it does not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from ragmon.capture.call import RANDOM_BITS, SPAN, SamplingDecision

QID: Final = "ragmon.qid"
PROBE: Final = "ragmon.probe"
TOKEN: Final = "ragmon.token"  # noqa: S105 - the name of a token, not a token
VALID: Final = 300.0
"""Seconds for which a token is valid, in either direction: clocks differ."""
_MAX_QID_LENGTH: Final = 512
"""Longest accepted question id, in characters."""


def sign(key: bytes, trace_id: int, qid: str, at: float) -> str:
    """The token that authenticates a probe (HMAC-SHA256, RFC 2104).

    Args:
        key: The key both ends have.
        trace_id: The trace it is for: it is valid for no other.
        qid: The gold question.
        at: When the probe is sent, seconds since the epoch.

    >>> sign(b"key", 1, "q", 1e9).partition("-")[0] == format(10**9, "x")
    True
    """
    import hmac  # noqa: PLC0415 - most processes never see a probe

    moment = int(at)
    message = "\0".join(("ragmon.probe", f"{trace_id:032x}", f"{moment:x}", qid))
    return f"{moment:x}-{hmac.new(key, message.encode('utf-8', 'surrogatepass'), 'sha256').hexdigest()}"


def probe_question(key: bytes, trace_id: int) -> str | None:
    """The gold question of the running request; None for a user's request, or if the token is not valid.

    Args:
        key: The key both ends have.
        trace_id: The trace the request runs in.
    """
    module = sys.modules.get("opentelemetry.baggage")
    baggage: Mapping[str, Any] = {} if module is None else module.get_all()
    qid, code = baggage.get(QID), baggage.get(TOKEN)
    if not (isinstance(qid, str) and isinstance(code, str)) or not 0 < len(qid) <= _MAX_QID_LENGTH:
        return None
    return qid if is_proved(key, trace_id, qid, code) else None


def is_proved(key: bytes, trace_id: int, qid: str, code: str) -> bool:
    """Whether a token is valid for this key, trace and question, and recent."""
    import hmac  # noqa: PLC0415 - as above
    from time import time  # noqa: PLC0415 - as above

    try:
        moment = int(code.partition("-")[0], 16)
    except ValueError:
        return False
    fresh = abs(time() - moment) <= VALID
    return fresh and hmac.compare_digest(sign(key, trace_id, qid, moment).encode(), code.encode("utf-8", "replace"))


_HEX_DIGITS = RANDOM_BITS // 4
_HEX = frozenset("0123456789abcdef")


class Parent(NamedTuple):
    """The span a call runs in.

    Attributes:
        trace_id: Its trace.
        span_id: Its own id.
        sampled: The application's tracer sampled it.
        draw: The trace's randomness, 56 bits.
        rejected: The sampler's threshold: smaller draws were not sampled; None if unknown (`ot=th` in tracestate).
    """

    trace_id: int
    span_id: int
    sampled: bool
    draw: int
    rejected: int | None

    def decision(self, rate: float, lowest: int, *, respected: bool) -> SamplingDecision | None:
        """The result of the audit draw; None if the parent was not sampled and that is respected.

        Args:
            rate: The share of calls that is kept.
            lowest: The smallest draw that is kept at that rate.
            respected: Only calls with sampled parents are eligible.
        """
        audit = self.draw >= lowest
        if not respected:
            return SamplingDecision(audit, rate)
        if not self.sampled:
            return None
        if self.rejected is None:
            return SamplingDecision(audit=False, p_audit=0.0, known=False)
        p_parent = 1 - self.rejected / SPAN
        return SamplingDecision(audit, min(rate, p_parent), p_parent)


def watcher() -> Callable[[], Mapping[str, Any]] | None:
    """A function that checks cheaply if a call may have a parent; None while the application uses no OpenTelemetry."""
    module = sys.modules.get("opentelemetry.context")
    if module is None or "opentelemetry.trace" not in sys.modules:
        return None
    # The context variable behind the public function, if it is still there: read on every call, it is ten times faster.
    variable = getattr(getattr(module, "_RUNTIME_CONTEXT", None), "_current_context", None)
    # While another thread is still importing the module, its functions may be missing.
    return variable.get if isinstance(variable, ContextVar) else getattr(module, "get_current", None)


def active_span() -> Parent | None:
    """The span that is active in this context."""
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span().get_span_context()
    return read_span_context(span) if span is not None and span.is_valid else None


def read_span_context(span: Any) -> Parent:
    """The parent described by a span context (`opentelemetry.trace.SpanContext`)."""
    state = _members(span.trace_state.get("ot") or "")
    rejected = _number(state.get("th", ""))
    return Parent(span.trace_id, span.span_id, bool(span.trace_flags.sampled), trace_randomness(span), rejected)


def trace_randomness(span: Any) -> int:
    """The randomness of a span's trace: from its trace id, or an explicit one (`tracestate ot=rv`)."""
    members: str = span.trace_state.get("ot") if span.trace_state else ""
    explicit = _number(_members(members).get("rv", ""), exact=True) if members else None
    return int(span.trace_id % SPAN) if explicit is None else explicit


def _members(text: str) -> dict[str, str]:
    """The members of OpenTelemetry's tracestate entry: `th:c;rv:0123456789abcd`."""
    return dict(part.split(":", 1) for part in text.split(";") if ":" in part)


def _number(text: str, *, exact: bool = False) -> int | None:
    """A threshold or randomness of up to 14 hex digits, padded with zeros on the right; None if it is not one."""
    is_valid = len(text) == _HEX_DIGITS if exact else 0 < len(text) <= _HEX_DIGITS
    return int(text.ljust(_HEX_DIGITS, "0"), 16) if is_valid and _HEX.issuperset(text) else None
