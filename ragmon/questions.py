"""How the questions of gold sets fared in a run, one by one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from ragmon.core.constants import LABEL
from ragmon.export.report import Question
from ragmon.metrics import facts
from ragmon.metrics.facts import Facts
from ragmon.scoring.scorer import Scorer


class Traced(NamedTuple):
    """A gold item that was traced, in one series."""

    pipeline: str
    source: str
    gold: str
    qid: str


def traced(scorer: Scorer) -> Iterator[tuple[Traced, Mapping[facts.Key, int]]]:
    """Every gold item that was traced, with the facts seen of it; what people said of an answer is no item of a set."""
    for key, series in scorer.state.series.items():
        if key.audit and not key.slice and key.source != LABEL:
            for table in series.items.all():
                for qid, seen in table.items():
                    yield Traced(key.pipeline, key.source, key.gold, qid), seen


def repeated(scorer: Scorer) -> int:
    """How many records repeat a question the same pipeline had answered under the same source."""
    counts: Counter[Traced] = Counter()
    for item, seen in traced(scorer):
        counts[item] += sum(seen.values())
    return sum(n - 1 for n in counts.values())


def unscorable(scorer: Scorer) -> dict[str, int]:
    """Per gold set, how many traced items never had an answer."""
    answered: dict[tuple[str, str], bool] = {}
    for item, seen in traced(scorer):
        has = any(Facts._make(key).flags & (facts.SHIPPED | facts.REFUSED) for key in seen)
        answered[(item.gold, item.qid)] = answered.get((item.gold, item.qid), False) or has
    return dict(Counter(gold for (gold, _), has in answered.items() if not has))


def questions_of(scorer: Scorer) -> list[Question]:
    """The per-question table, in the order of the gold sets; how often each thing happened to a question."""
    known = ((gold.name, item.qid) for gold in scorer.gold.sets for item in gold)
    places = {key: place for place, key in enumerate(known)}
    times: Counter[tuple[int, Question]] = Counter()
    for item, seen in traced(scorer):
        place = places.get((item.gold, item.qid), len(places))
        for key, n in seen.items():
            times[(place, _question(item, Facts._make(key)))] += n
    ordered = sorted(times.items(), key=lambda entry: (entry[0][0], entry[0][1].pipeline, entry[0][1].label))
    return [replace(question, times=n) for (_, question), n in ordered]


def _question(item: Traced, seen: Facts) -> Question:
    shipped, refused, hit = seen.has(facts.SHIPPED), seen.has(facts.REFUSED), seen.has(facts.HITS)
    if not (shipped or refused):
        label = "NO_ANSWER"
    elif seen.answerable:
        label = "OVER_REFUSAL" if refused else "OK" if hit else "ANS_NO_HIT"
    else:
        label = "REFUSAL_OK" if refused else "HALLUCINATION"
    return Question(item.qid, shipped, hit, refused, label, pipeline=item.pipeline)
