"""What a judge says: a verdict, the findings behind it, and the result that is handed out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from ragmon.core.constants import JUDGE_PREFIX

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
class Finding:
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
    findings: tuple[Finding, ...] = ()
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
        findings: Sequence[Finding] = () if opinion is None else opinion.findings
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


class NoJudgementError(Exception):
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
