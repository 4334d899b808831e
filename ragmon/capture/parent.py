"""Probes that come from elsewhere: a request whose baggage names a gold question, and proves that it may.

Anybody can write baggage. What a stranger calls a probe would vanish from the totals of users, and its text would be
kept; so it is believed only with a code over its trace, its question and its time, under a key both ends have.

The trace of the application's own tracer that a call runs in, where it has one.

OpenTelemetry is looked up, never imported: whoever does not use it does not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

from ragmon.capture.call import RANDOM_BITS, SPAN, SamplingDecision

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


def probe_question(key: bytes, trace_id: int) -> str | None:
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


_HEX_DIGITS = RANDOM_BITS // 4
_HEX = frozenset("0123456789abcdef")


class Parent(NamedTuple):
    """The span a call runs in.

    Attributes:
        trace_id: Its trace.
        span_id: Its own id.
        sampled: The application's tracer keeps it.
        draw: The trace's randomness, 56 bits.
        rejected: Draws below this were not sampled; None where the sampler does not say (`tracestate ot=th`).
    """

    trace_id: int
    span_id: int
    sampled: bool
    draw: int
    rejected: int | None

    def odds(self, rate: float, lowest: int, *, respected: bool) -> SamplingDecision | None:
        """How the audit draw went; None where the parent's sampler had decided against the call.

        Args:
            rate: The share of calls that is kept.
            lowest: The smallest draw that is kept at that rate.
            respected: Only sampled parents count.
        """
        won = self.draw >= lowest
        if not respected:
            return SamplingDecision(won, rate)
        if not self.sampled:
            return None
        if self.rejected is None:
            return SamplingDecision(audit=False, p_audit=0.0, known=False)
        p_parent = 1 - self.rejected / SPAN
        return SamplingDecision(won, min(rate, p_parent), p_parent)


def watcher() -> Callable[[], Mapping[str, Any]] | None:
    """What tells cheaply whether a call may have a parent; None while the application uses no OpenTelemetry."""
    module = sys.modules.get("opentelemetry.context")
    if module is None or "opentelemetry.trace" not in sys.modules:
        return None
    # The variable under the public function, where it is still kept there: asked in every call, it is ten times faster.
    variable = getattr(getattr(module, "_RUNTIME_CONTEXT", None), "_current_context", None)
    # Another thread may be half-way through importing it.
    return variable.get if isinstance(variable, ContextVar) else getattr(module, "get_current", None)


def active_span() -> Parent | None:
    """The span that is active here."""
    trace = sys.modules.get("opentelemetry.trace")
    span = None if trace is None else trace.get_current_span().get_span_context()
    return read_span_context(span) if span is not None and span.is_valid else None


def read_span_context(span: Any) -> Parent:
    """What a span's context says (`opentelemetry.trace.SpanContext`)."""
    state = _members(span.trace_state.get("ot") or "")
    rejected = _number(state.get("th", ""))
    return Parent(span.trace_id, span.span_id, bool(span.trace_flags.sampled), trace_randomness(span), rejected)


def trace_randomness(span: Any) -> int:
    """The randomness of a span's trace: its own, or the one it carries (`tracestate ot=rv`)."""
    told: str = span.trace_state.get("ot") if span.trace_state else ""
    chosen = _number(_members(told).get("rv", ""), exact=True) if told else None
    return int(span.trace_id % SPAN) if chosen is None else chosen


def _members(text: str) -> dict[str, str]:
    """The members of OpenTelemetry's entry in a tracestate: `th:c;rv:0123456789abcd`."""
    return dict(part.split(":", 1) for part in text.split(";") if ":" in part)


def _number(text: str, *, exact: bool = False) -> int | None:
    """A threshold or a randomness of up to 14 hex digits, missing ones are zeros on the right; None for none."""
    fits = len(text) == _HEX_DIGITS if exact else 0 < len(text) <= _HEX_DIGITS
    return int(text.ljust(_HEX_DIGITS, "0"), 16) if fits and _HEX.issuperset(text) else None
