"""Gold items over time: how often each was asked, and how often it was answered rightly, by step and by hour.

An answer is right where a question that can be answered is answered with a citation of a gold document, and any other
is refused: the outcomes `OK` and `REFUSAL_OK` of a report. Whether it was is not known where citations were not
captured, or where gold names no document ids.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ragmon.core.constants import LABEL
from ragmon.core.gold_item import HAS_GOLD_IDS
from ragmon.metrics import facts
from ragmon.metrics.facts import Facts, Key
from ragmon.scoring.buckets import State, Table

RIGHT: Final = ("OK", "REFUSAL_OK")
"""The outcomes of right answers."""
_KNOWN_KEYS: Final = 16_384
"""Facts whose outcome is cached: many items have the same few."""


def item_outcome(observed: Facts) -> str:
    """The outcome of one request of a gold question, in the terms of seed 002's report.

    >>> item_outcome(Facts(0))
    'NO_ANSWER'
    """
    shipped, refused, hit = observed.has(facts.SHIPPED), observed.has(facts.REFUSED), observed.has(facts.HITS)
    if not (shipped or refused):
        return "NO_ANSWER"
    if observed.answerable:
        return "OVER_REFUSAL" if refused else "OK" if hit else "ANS_NO_HIT"
    return "REFUSAL_OK" if refused else "HALLUCINATION"


@lru_cache(_KNOWN_KEYS)
def is_right(key: Key) -> bool | None:
    """Whether a request of a gold question was answered rightly; None where that is not known."""
    observed = Facts._make(key)
    outcome = item_outcome(observed)
    if outcome == "NO_ANSWER" and observed.has(facts.OUTCOME_UNKNOWN):
        return None
    if outcome == "ANS_NO_HIT" and (not observed.has(HAS_GOLD_IDS) or observed.has(facts.CITATIONS_MISSING)):
        return None
    return outcome in RIGHT


class ItemPoint(NamedTuple):
    """The answers to a gold item in one step or hour.

    Attributes:
        begin, end: Its edges, seconds since the epoch; both are -1 for requests whose time is not known.
        right, wrong: Answers that were right, and others.
        unknown: Answers of which neither is known.
    """

    begin: int
    end: int
    right: int = 0
    wrong: int = 0
    unknown: int = 0


class SetPipeline(NamedTuple):
    """A gold set in force, and a pipeline that was asked its questions."""

    gold: str
    version: str
    pipeline: str


ItemPoints = dict[str, list[ItemPoint]]
"""The answers to each item; several points may have the same time."""


def set_pipelines(state: State) -> set[SetPipeline]:
    """The gold sets that pipelines were asked, in all versions."""
    return {SetPipeline(key.gold, key.gold_version, key.pipeline) for key in state.series if key.gold_version}


def item_tables(state: State, asked: SetPipeline) -> list[tuple[int, int, Table]]:
    """The tables of the items of a set, of every source and build, with the start and the end of their step or hour.

    They are of audit members, as `ragmon_gold_items_seen` is, and are not copied.

    Args:
        state: The counts.
        asked: The set and the pipeline.
    """
    return [
        timed
        for key, series in state.series.items()
        if (key.gold, key.gold_version, key.pipeline) == asked and key.drawn and not key.slice and key.source != LABEL
        for timed in series.timed_items()
    ]


def add_points(found: ItemPoints, begin: int, end: int, table: Table) -> None:
    """Add the answers of a table to those of each item.

    Args:
        found: What is added to.
        begin: The start of the table's step or hour, seconds since the epoch; -1 where it has none.
        end: Its end, likewise.
        table: The table.
    """
    for qid, counts in table.items():
        right = wrong = unknown = 0
        for key, n in counts.items():
            verdict = is_right(key)
            if verdict is None:
                unknown += n
            elif verdict:
                right += n
            else:
                wrong += n
        found.setdefault(qid, []).append(ItemPoint(begin, end, right, wrong, unknown))
