"""What a judge says: a verdict, the findings behind it, and the result that is handed out.

`@ragmon.judge`: functions of the application that score its answers.
"""

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
    """What a judge function may return in place of a bare score.

    Args:
        score: In [0, 1]; None where there is nothing to judge.
        reason: Why; it stays in memory.

    >>> Verdict(0.5, "half of it is there")
    Verdict(score=0.5)
    """

    score: float | None
    reason: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ItemJudgement:
    """What a model found about one context, or one claim.

    Args:
        verdict: `yes` or `no`.
        reason: Why, in the model's words; None where nobody asked.
    """

    verdict: str
    reason: str | None = field(default=None, repr=False)

    @property
    def is_yes(self) -> bool:
        """Whether it speaks for the answer."""
        return self.verdict == YES


@dataclass(frozen=True)
class Opinion:
    """A score and what stands behind it, before a threshold is held against it.

    Args:
        score: In [0, 1].
        reason: Why; None where nobody asked.
        findings: One for each context or claim; a function gives none.
        context_count: How many contexts the request had.
    """

    score: float
    reason: str | None = field(default=None, repr=False)
    findings: tuple[ItemJudgement, ...] = ()
    context_count: int | None = None


@dataclass(frozen=True)
class Judgement:
    """What became of one request before one judge.

    Args:
        judge: The judge's name.
        result: A word of `ragmon.core.constants.JUDGE_RESULTS`.
        threshold: From which score on it is a success.
        latency_ms: How long it took, milliseconds.
        opinion: The score and its reasons; None where there is none, which is neither a success nor a failure.
    """

    judge: str
    result: str
    threshold: float
    latency_ms: float
    opinion: Opinion | None = None

    @property
    def metric(self) -> str:
        """The metric the score belongs to."""
        return f"{JUDGE_PREFIX}{self.judge}"

    @property
    def score(self) -> float | None:
        """The score; None where the judge failed, or there was nothing to judge."""
        return None if self.opinion is None else self.opinion.score

    @property
    def success(self) -> bool | None:
        """Whether the score reaches the threshold; None without a score: a judge that fails passes nobody."""
        return None if self.opinion is None else self.opinion.score >= self.threshold

    def as_dict(self) -> dict[str, Any]:
        """The shape seed 001 gives its results, and the word for what became of it."""
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
                "verdicts": [{"verdict": found.verdict, "reason": found.reason} for found in findings],
            },
        }


class JudgeError(Exception):
    """A judge comes to no score; nothing in it quotes a request.

    Args:
        result: A word of `ragmon.core.constants.JUDGE_RESULTS`.
        why: For the log and for developers.
        status: The HTTP status, where that is why.
    """

    def __init__(self, result: str, why: str = "", *, status: int | None = None) -> None:
        super().__init__(why or result)
        self.result = result
        self.status = status


Said = float | Verdict | None
Function = Callable[[Record], Said | Awaitable[Said]]
F = TypeVar("F", bound=Callable[..., Any])
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*\Z")

_functions: dict[str, Function] = {}


def judge(name: str) -> Callable[[F], F]:
    """Score answers by a function of your own; its mean is the metric `judge_<name>`.

    The function gets the record of a shipped answer and returns a score in [0, 1], a `ragmon.Verdict`, or None where it
    has nothing to say. It may be async. `[judges.<name>]` says how many answers it sees; it runs off the request path,
    and what it raises is counted and scores nothing.

    Args:
        name: Lower-case letters, digits, underscores.

    Raises:
        RagmonError: The name is taken or cannot be used.

    Example::

        @ragmon.judge("short")
        def short(record):
            return float(len(record.answer_json.claim) < 400)
    """
    if not isinstance(name, str) or not _NAME.match(name):
        hint = 'lower-case letters, digits, underscores: @ragmon.judge("faithfulness")'
        raise RagmonError(f"judge name {shorten(name)} is not usable", hint=hint)

    def keep(function: F) -> F:
        if not callable(function):
            raise RagmonError(
                f"judge {name} is no function: {shorten(function)}", hint="a callable that takes a record"
            )
        held = _functions.get(name)
        if held is not None and _place(held) != _place(function):
            raise RagmonError(f"judge {name!r} is registered already", hint="one function a name")
        register(judged(name))
        _functions[name] = function
        return function

    return keep


def functions() -> dict[str, Function]:
    """All judge functions by name."""
    return dict(_functions)


def _place(function: Callable[..., Any]) -> tuple[object, object]:
    return getattr(function, "__module__", None), getattr(function, "__qualname__", function)
