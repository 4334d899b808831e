"""The results of judges: verdicts, opinions and judgements; and `@ragmon.judge` for functions that score answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import RagmonError, shorten
from ragmon.core.record import Record
from ragmon.metrics.base import judged, register

YES: Final = "yes"
NO: Final = "no"


@dataclass(frozen=True)
class Verdict:
    """What a judge function may return instead of a bare score.

    Args:
        score: In [0, 1]; None if there is nothing to judge.
        reason: The reason; it stays in memory.

    Examples:
        >>> Verdict(0.5, "half of it is there")
        Verdict(score=0.5)
    """

    score: float | None
    reason: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ItemJudgement:
    """A model's judgement of one context or one claim.

    Args:
        verdict: `yes` or `no`.
        reason: The reason, in the model's words; None if not requested.
    """

    verdict: str
    reason: str | None = field(default=None, repr=False)

    @property
    def is_yes(self) -> bool:
        """Whether the verdict is yes."""
        return self.verdict == YES


@dataclass(frozen=True)
class Opinion:
    """A score and the judgements behind it, before it is compared with a threshold.

    Args:
        score: In [0, 1].
        reason: The reason; None if not requested.
        findings: One per context or claim; empty for a function.
        context_count: Number of contexts of the request.
    """

    score: float
    reason: str | None = field(default=None, repr=False)
    findings: tuple[ItemJudgement, ...] = ()
    context_count: int | None = None


@dataclass(frozen=True)
class Judgement:
    """The result of one judge for one request.

    Args:
        judge: The judge's name.
        result: One of `ragmon.core.constants.JUDGE_RESULTS`.
        threshold: Smallest score that counts as a success.
        latency_ms: Duration in milliseconds.
        opinion: The score and its reasons; None if there is none, which is neither a success nor a failure.
        version: The version of the judge.
    """

    judge: str
    result: str
    threshold: float
    latency_ms: float
    opinion: Opinion | None = None
    version: str = ""

    @property
    def metric(self) -> str:
        """The name of the score's metric."""
        return f"{JUDGE_PREFIX}{self.judge}"

    @property
    def score(self) -> float | None:
        """The score; None if the judge failed, or there was nothing to judge."""
        return None if self.opinion is None else self.opinion.score

    @property
    def success(self) -> bool | None:
        """Whether the score reaches the threshold; None without a score, so that a failing judge passes no request."""
        return None if self.opinion is None else self.opinion.score >= self.threshold

    def as_dict(self) -> dict[str, Any]:
        """The result in the format of seed 001, with `result` in its metadata."""
        opinion = self.opinion
        findings: Sequence[ItemJudgement] = () if opinion is None else opinion.findings
        return {
            "metric": self.metric,
            "score": self.score,
            "success": self.success,
            "threshold": self.threshold,
            "reason": None if opinion is None else opinion.reason,
            "latency_ms": self.latency_ms,
            "metadata": {
                "result": self.result,
                "context_count": None if opinion is None else opinion.context_count,
                "verdicts": [{"verdict": finding.verdict, "reason": finding.reason} for finding in findings],
            },
        }


class JudgeError(Exception):
    """A judge found no score; the message quotes no text of the request.

    Args:
        result: One of `ragmon.core.constants.JUDGE_RESULTS`.
        why: The message for log and developers.
        status: The HTTP status, if that is the reason.
    """

    def __init__(self, result: str, why: str = "", *, status: int | None = None) -> None:
        super().__init__(why or result)
        self.result = result
        self.status = status


JudgeReturn = float | Verdict | None
Function = Callable[[Record], JudgeReturn | Awaitable[JudgeReturn]]
F = TypeVar("F", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\Z")

_functions: dict[str, Function] = {}


def judge(name: str) -> Callable[[F], F]:
    """Register a function that scores answers; its mean is the metric `judge_<name>`.

    The function gets the record of a shipped answer and returns a score in [0, 1], a `ragmon.Verdict`, or None if it
    has nothing to judge. It may be async. `[judges.<name>]` sets the share of answers it gets; it runs off the request
    path, and an exception is counted and gives no score.

    Args:
        name: Lower-case letters, digits, underscores.

    Raises:
        RagmonError: The name is already used or not valid.

    Examples:
        >>> import ragmon
        >>> @ragmon.judge("short")
        ... def short(record):
        ...     return float(len(record.answer_json.claim) < 400)
        >>> short(ragmon.testing.make_record(claim="At 9."))
        1.0
    """
    if not isinstance(name, str) or not _NAME.match(name):
        hint = 'lower-case letters, digits, underscores: @ragmon.judge("faithfulness")'
        raise RagmonError(f"judge name {shorten(name)} is not usable", hint=hint)

    def keep(function: F) -> F:
        if not callable(function):
            raise RagmonError(
                f"judge {name} is no function: {shorten(function)}", hint="a callable that takes a record"
            )
        existing = _functions.get(name)
        if existing is not None and _qualified_name(existing) != _qualified_name(function):
            raise RagmonError(f"judge {name!r} is registered already", hint="one function a name")
        register(judged(name))
        _functions[name] = function
        return function

    return keep


def functions() -> dict[str, Function]:
    """All judge functions, by name."""
    return dict(_functions)


def _qualified_name(function: Callable[..., Any]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)
