"""The judges that come with ragmon: contextual precision and faithfulness."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from ragmon.core.constants import SKIPPED
from ragmon.judges import prompts, replies
from ragmon.judges.prompts import Prompt
from ragmon.judges.results import Finding, NoJudgementError, Opinion
from ragmon.metrics.retrieval import precision_sum

CONTEXTUAL_PRECISION: Final = "contextual_precision"
FAITHFULNESS: Final = "faithfulness"


class Case(NamedTuple):
    """The texts of one request.

    Attributes:
        question: What was asked.
        contexts: What was retrieved, in rank order.
        answer: What was answered.
        expected: What should have been; "" where nobody knows.
    """

    question: str
    contexts: tuple[str, ...]
    answer: str = ""
    expected: str = ""


class Asked(Protocol):
    """Somebody who answers prompts."""

    async def ask(self, prompt: Prompt) -> str:
        """What the model says.

        Raises:
            NoJudgementError: Nothing that can be used.
        """


async def contextual_precision(asked: Asked, case: Case, *, reasons: bool) -> Opinion:
    """Are the contexts that help to arrive at the expected answer ranked first?

    Source: seed 001, DeepEval's contextual precision: the sum over relevant ranks of (relevant so far / rank), divided
    by the number of relevant contexts; 0 where none is relevant.

    Raises:
        NoJudgementError: The model gives no usable verdict on each of them.
    """
    if not case.contexts:
        return Opinion(0.0, "Nothing was retrieved." if reasons else None, context_count=0)
    prompt = prompts.relevance(case.question, case.expected, case.contexts, reasons=reasons)
    found = replies.findings(await asked.ask(prompt), len(case.contexts), reasons=reasons)
    relevant = sum(1 << place for place, finding in enumerate(found) if finding.is_yes)
    score = precision_sum(relevant) / relevant.bit_count() if relevant else 0.0
    return _opinion(score, found, len(case.contexts), "contexts are relevant" if reasons else None)


async def faithfulness(asked: Asked, case: Case, *, reasons: bool) -> Opinion:
    """Which share of the answer's claims do the contexts support?

    Source: Es et al., RAGAS, EACL 2024, section 3.1: supported statements / statements. An answer that claims nothing
    has no share.

    Raises:
        NoJudgementError: The model lists no usable claims, or gives no usable verdict on each of them.
    """
    made = replies.claims(await asked.ask(prompts.claims(case.answer)))
    if not made:
        raise NoJudgementError(SKIPPED, "the answer makes no claim")
    prompt = prompts.support(made, case.contexts, reasons=reasons)
    found = replies.findings(await asked.ask(prompt), len(made), reasons=reasons)
    score = sum(finding.is_yes for finding in found) / len(found)
    return _opinion(score, found, len(case.contexts), "claims are supported" if reasons else None)


def _opinion(score: float, found: Sequence[Finding], contexts: int, what: str | None) -> Opinion:
    """A score with a reason made of its findings: the model is not asked to explain a number it did not compute."""
    reason = None
    if what is not None:
        against = [f"{n}: {one.reason}" for n, one in enumerate(found, start=1) if one.reason and not one.is_yes]
        yes = sum(finding.is_yes for finding in found)
        reason = " ".join([f"{yes} of {len(found)} {what}.", *against])
    return Opinion(score, reason, tuple(found), contexts)


Kind = Callable[..., Awaitable[Opinion]]
KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {CONTEXTUAL_PRECISION: contextual_precision, FAITHFULNESS: faithfulness}
)
"""What a model can be asked to judge, by its name in ragmon.toml."""
