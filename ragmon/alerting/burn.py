"""How fast a gate may be burning: budgets and factors follow from the gate, and one that can never be seen is refused.

The factors of availability targets (14.4, 6) can never be reached by shares of quality: a gate of 0.80 leaves a
budget of 0.20, and nothing burns faster than 5 times (1 / 0.20). Here the user names the level worth a page.
"""

from __future__ import annotations

from dataclasses import dataclass

from ragmon.alarms.plan import worth_a_page
from ragmon.core.errors import RagmonError
from ragmon.core.policy import Gate


@dataclass(frozen=True)
class Burn:
    """A gate as a budget of failures.

    Attributes:
        budget: Share of failures the gate allows.
        page: Share of failures worth a page.
    """

    budget: float
    page: float

    @property
    def factor(self) -> float | None:
        """How many times faster than the gate allows the budget burns at the level worth a page; None: it has none.

        >>> Burn(budget=0.2, page=0.3).factor
        1.5
        """
        return round(self.page / self.budget, 6) if self.budget else None


def burn_of(gate: Gate) -> Burn:
    """The budget of a gate.

    Args:
        gate: A gate on a share.

    Raises:
        RagmonError: The level worth a page could never be seen, or lies within the budget.

    >>> burn_of(Gate("precision", "answer_precision", 0.8, "at_least"))
    Burn(budget=0.2, page=0.3)
    """
    level = worth_a_page(gate)
    budget, page = (1 - gate.threshold, 1 - level) if gate.at_least else (gate.threshold, level)
    found = Burn(round(budget, 9), round(page, 9))
    key = "page_below" if gate.at_least else "page_above"
    if found.page >= 1:
        side = "below 0" if gate.at_least else "above 1"
        raise RagmonError(
            f"gate {gate.pipeline}/{gate.name}: {key} is {level:g}, and no share is {side}: a slow burn is never seen",
            hint=f"{key} = {_between(gate):g}, a level between the threshold and what is possible",
        )
    if found.page < found.budget:
        raise RagmonError(
            f"gate {gate.pipeline}/{gate.name}: {key} = {level:g} is within the threshold {gate.threshold:g}",
            hint=f"{key} = {_between(gate):g}, a level beyond the threshold",
        )
    return found


def _between(gate: Gate) -> float:
    return round(gate.threshold / 2 if gate.at_least else (1 + gate.threshold) / 2, 4)
