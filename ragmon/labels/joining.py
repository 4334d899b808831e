"""An answer and what is said of it become a record under the source `label`, and the gold item it is held against."""

from __future__ import annotations

import msgspec

from ragmon.core.constants import LABEL, LABELS
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.gold.labels.ratings import Verdict
from ragmon.metrics.answers import AnswerCorrect


def labelled(answer: Record, verdict: Verdict, ts: float | None) -> Record:
    """The record of a labelled answer.

    Args:
        answer: The answer.
        verdict: What is said of it.
        ts: When it counts, seconds since the epoch: when the label came, or when the answer was given.
    """
    measures = dict(answer.measures or {})
    measures.pop(AnswerCorrect.name, None)
    if verdict.correct is not None:
        measures[AnswerCorrect.name] = verdict.correct
    return msgspec.structs.replace(answer, source=LABEL, ts=ts, measures=measures or None)


def gold_item(trace_id: str, verdict: Verdict) -> GoldItem | None:
    """The gold that is in a verdict; None where it says neither whether nor where the answer is.

    A question of which somebody names documents has an answer, and one for which none is relevant has none, unless
    somebody says otherwise.
    """
    answerable, relevant = verdict.answerable, verdict.relevant_ids
    if answerable is None and relevant is None:
        return None
    has_answer = bool(relevant) if answerable is None else answerable
    return GoldItem(
        qid=trace_id,
        question="",
        answerable=has_answer,
        citations=relevant or None,
        set_name=LABELS,
    )
