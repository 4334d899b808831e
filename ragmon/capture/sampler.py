"""The object that decides about calls, marks them, and counts those that lose the draw."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from time import perf_counter
from typing import Any, Final, Literal, final

from ragmon.capture.call import SamplingDecision, UnsampledCall, here, random

WAITING: Final = 65_536
"""Latencies of a stratum that wait to be counted; if the worker does not read them, the oldest are dropped."""


_SMALL: Final = 64
_ENTRY: Final = 1024
"""Estimated bytes of a value that is neither text nor a list, and of a list's entry."""


def estimated_bytes(parts: Iterable[Any]) -> int:
    """A rough estimate of the bytes that values keep alive, without walking through them."""
    size = 0
    for part in parts:
        kind = type(part)
        if kind is str or kind is bytes:
            size += len(part)
        elif kind is list and part:  # all entries count as the first one
            first = part[0]
            if type(first) is str:
                entry = len(first)
            else:
                entry = _ENTRY
                if type(first) is dict:
                    for value in first.values():
                        if type(value) is str:
                            entry += len(value)
            size += len(part) * entry
        else:
            size += _SMALL
    return size


def weigh(result: Any, args: tuple[Any, ...]) -> int:
    """Estimated bytes that a call's result and positional arguments keep alive."""
    return estimated_bytes((*result.values(), *args) if type(result) is dict else (result, *args))


def answer_of(result: Any) -> Any:
    """The text of a result, where it lies on the surface; anything else where it has none."""
    if type(result) is not dict:
        return result
    text = result.get("claim")
    if text is None:
        text = result.get("answer")
        if text is None:
            text = result.get("answer_json")
    return text.get("claim") if type(text) is dict else text


def _since(started: float | None) -> float | None:
    return None if started is None else perf_counter() - started


@final
class UnsampledAsyncCall(UnsampledCall):
    """An async call that is only counted, for its context.

    Args:
        sampler: Counts it.
        started: When it began, by `perf_counter`; None where it is not timed.
    """

    __slots__ = ("_sampler", "_started")

    def __init__(self, sampler: Sampler, started: float | None) -> None:
        self._sampler = sampler
        self._started = started
        self.ended = False

    def __contains__(self, result: object) -> bool:
        self.ended = self._sampler.count(result, self._started)
        return self.ended

    def __neg__(self) -> float | None:
        self.ended = True
        return _since(self._started)


@final
class Sampler:
    """Decides about the calls of one sampling plan, and counts those that lose the draw and are only counted.

    Its operations are operators and not methods. After a call Python looks for signals, and what their handlers raise
    there would come between a thread's mark and the `try` that takes it off again; after an operator it does not look.

    `+sampler` begins a call: True for one that is only counted, a decision for one that is or may be kept, None where
    more must be looked at. `result in sampler` ends the first kind: True where it is counted, False where more is to
    do. `-sampler` ends it uncounted, and gives its seconds, or None.

    A sync call marks its thread. Async calls have an object each in place of True, which marks their context, has the
    other two operators and an attribute `ended`.

    Args:
        running: Gives the running call of the context; None where there is none. An ended one has a true `ended`.
        p_unsampled: The probability that a call is not sampled.
        sampled: The sampling decision of a sampled call.
        unsampled: The sampling decision of one that is not.
        mark: Sets the context's running call, for async calls; None for sync ones.
        times: Read the clock for each call that is only counted.
        slow_above: Seconds above which a call is not counted here.
        shortest: Characters of the shortest answer that is surely no refusal.
        refuses: Whether a shorter one is; None where results are not looked at.
    """

    __slots__ = (
        "_calls",
        "_mark",
        "_p_unsampled",
        "_refuses",
        "_remembers",
        "_running",
        "_sampled",
        "_seconds",
        "_shortest",
        "_slow",
        "_times",
        "_unsampled",
        "_watch",
    )

    def __init__(
        self,
        running: Callable[[], Any],
        p_unsampled: float,
        sampled: SamplingDecision,
        unsampled: SamplingDecision,
        mark: Callable[[Any], object] | None,
        times: bool,
        slow_above: float,
        shortest: int,
        refuses: Callable[[str], bool] | None,
    ) -> None:
        self._running = running
        self._p_unsampled = p_unsampled
        self._sampled = sampled
        self._unsampled = unsampled
        self._mark = mark
        self._times = times
        self._slow = slow_above
        self._shortest = shortest
        self._refuses = refuses
        self._remembers = False
        self._watch: Callable[[], Mapping[str, Any]] | None = None
        self._calls = 0
        self._seconds: deque[float] = deque(maxlen=WAITING)

    def __pos__(self) -> SamplingDecision | UnsampledAsyncCall | Literal[True] | None:
        thread, outer, watch = here.lane, self._running(), self._watch
        if thread.busy or not (outer is None or outer.ended) or (watch is not None and watch()):
            return None
        if random() >= self._p_unsampled:
            return self._sampled
        if self._remembers:
            return self._unsampled
        started = perf_counter() if self._times else None
        if self._mark is not None:
            call = UnsampledAsyncCall(self, started)
            try:
                self._mark(call)
            except BaseException:  # of a signal, as Python looks for them after the call
                call.ended = True
                raise
            return call
        thread.started = started
        thread.busy = True  # last: from here to the caller's `try` no signal is handled
        return True

    def __contains__(self, result: object) -> bool:
        thread = here.lane
        if thread.mark is not None or not self.count(result, thread.started):
            return False
        thread.busy = False
        return True

    def count(self, result: object, started: float | None) -> bool:
        """Count a call that returned; False if more is to be done with it."""
        seconds = None if started is None else perf_counter() - started
        kind = type(result)
        if (kind is not dict and kind is not str) or (seconds is not None and seconds > self._slow):
            return False
        if self._refuses is not None and self._may_refuse(result, self._refuses):
            return False
        # Operators alone from here on: after a call a signal could raise, and this one would be counted again, as an
        # error; or another thread could count between read and write.
        if seconds is not None:
            self._seconds += (seconds,)
        self._calls += 1
        return True

    def is_usual(self, result: object) -> bool:
        """Whether a result is surely no stream and no refusal."""
        kind = type(result)
        return (kind is dict or kind is str) and (self._refuses is None or not self._may_refuse(result, self._refuses))

    def _may_refuse(self, result: Any, refuses: Callable[[str], bool]) -> bool:
        try:
            text = answer_of(result)
            return type(text) is str and len(text) < self._shortest and refuses(text)
        except Exception:  # noqa: BLE001 - whoever looks again reports it
            return True

    def __neg__(self) -> float | None:
        thread = here.lane
        thread.busy = False
        return _since(thread.started)

    def calls(self) -> int:
        """How many calls it has counted."""
        return self._calls

    def take_seconds(self) -> bytes:
        """The seconds of those that were timed since this was asked last, as an array of doubles."""
        return array("d", [self._seconds.popleft() for _ in range(len(self._seconds))]).tobytes()

    def refresh(self, watch: Callable[[], Mapping[str, Any]] | None, remembers: bool) -> None:
        """Say what the application has begun to use.

        Args:
            watch: Is not empty where a call may have a parent; None while it cannot.
            remembers: Unsampled calls get a call object as well.
        """
        self._watch, self._remembers = watch, remembers
