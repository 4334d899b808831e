"""What `ragmon.install` sets up and every decorated function reads: one runtime for the process, or none."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from ragmon import names
from ragmon.capture.calls import Call, threshold

logger = logging.getLogger("ragmon")


@dataclass
class Runtime:
    """The installed capture.

    Attributes:
        submit: Hands a finished call to the worker; never blocks, never raises.
        pipeline: Name of pipelines that have none of their own.
        rate: Share of calls kept where the decorator says nothing.
        refusals: Folded refusal tokens, to tell a refusal by a cheap look.
        slow_above: Seconds from which a call counts as slow; None where nothing is slow.
    """

    submit: Callable[[Call], None]
    pipeline: str = names.DEFAULT_PIPELINE
    rate: float = 1.0
    refusals: frozenset[str] = frozenset({names.REFUSAL_TOKEN})
    slow_above: float | None = None
    calls: dict[tuple[str, str], count[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.threshold = threshold(self.rate)
        self.longest = max(map(len, self.refusals), default=0) + 8

    def count(self, pipeline: str, stratum: str) -> None:
        """Count one call, sampled or not; `next` on a counter is one step even among threads."""
        counter = self.calls.get((pipeline, stratum))
        if counter is None:
            counter = self.calls.setdefault((pipeline, stratum), count())
        next(counter)

    def totals(self) -> dict[tuple[str, str], int]:
        """All calls so far by pipeline and stratum."""
        return {key: seen(counter) for key, counter in self.calls.items()}

    def stratum(self, result: Any, seconds: float) -> str:
        """The outcome of a call that did not raise, by a look that costs next to nothing."""
        text = result
        if isinstance(result, dict):
            text = result.get("claim") or result.get("answer")
        if isinstance(text, str) and len(text) < self.longest and text.strip().lower() in self.refusals:
            return "refusal"
        if self.slow_above is not None and seconds > self.slow_above:
            return "slow"
        return names.REST


def seen(counter: count[int]) -> int:
    """How often `next` was called on a counter that started at 0, without calling it."""
    return int(str(counter).removeprefix("count(").removesuffix(")"))


_installed: Runtime | None = None
_orphans = count()
_warned: set[str] = set()


def installed() -> Runtime | None:
    """The runtime; None where `ragmon.install` was not called."""
    return _installed


def use(runtime: Runtime | None) -> Runtime | None:
    """Make a runtime the process's own; returns the one it replaces."""
    global _installed  # one process has one capture, and decorated functions must find it without a lookup
    before, _installed = _installed, runtime
    return before


def orphan(what: str) -> None:
    """Count something said outside a traced call, and warn once."""
    if _installed is None:
        warn_once(f"ragmon.{what}() was called, but ragmon.install() was not: nothing is monitored")
        return
    next(_orphans)
    warn_once(f"ragmon.{what}() was called outside a traced call; it is counted and ignored")


def orphans() -> int:
    """How much was said outside a traced call."""
    return seen(_orphans)


def warn_once(message: str) -> None:
    """Log a warning the first time it comes up."""
    if message not in _warned:
        _warned.add(message)
        logger.warning(message)
