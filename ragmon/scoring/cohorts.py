"""Addition of counts and sums; and cohorts: the labels and proxies of answers given in one hour.

A label comes days after its answer. It is compared with the proxies of all answers of its own hour and judge version,
so that neither a change of the judge nor of the traffic comes between them (`ragmon.scoring.labels` estimates).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from ragmon.core.constants import BUCKET_SECONDS, FOLDED_SECONDS, FRESH, HOUR, JUDGE_PREFIX, OTHER
from ragmon.metrics.answers import AnswerCorrect
from ragmon.scoring.ratings import TTL
from ragmon.stats.histograms import MICRO

T = TypeVar("T")
UNTIMED: Final = -1
"""The step and the hour of records without a time: they are in the totals, but in no window."""
Sums = list[int]
"""`[n, sum, squares // MICRO, squares % MICRO]` of a measure in micro-units: each part of the sum of squares adds up by
itself, and fits the 64 bits of a saved number for a lifetime of requests."""


def sums_of(n: int, score: int) -> Sums:
    """The sums of requests with one score in micro-units."""
    high, low = divmod(score * score, MICRO)
    return [n, n * score, n * high, n * low]


def add_counts(mine: dict[T, int], other: Mapping[T, int]) -> None:
    """Add counts to a dictionary of counts."""
    if not mine:  # as most are at first; this copies many at once
        mine.update(other)
        return
    for key, n in other.items():
        mine[key] = mine.get(key, 0) + n


def add_sums(mine: dict[T, Sums], key: T, sums: Iterable[int]) -> None:
    """Add sums to those of a key."""
    own_sums = mine.get(key)
    if own_sums is None:
        mine[key] = list(sums)
    else:
        for i, x in enumerate(sums):
            own_sums[i] += x


def step_of(ts: float | None) -> int:
    """The start of the step of an event time; `UNTIMED` without a time."""
    return UNTIMED if ts is None else int(ts) // BUCKET_SECONDS * BUCKET_SECONDS


def slot(step: int) -> int:
    """The start of the five minutes that a step belongs to."""
    return step // FOLDED_SECONDS * FOLDED_SECONDS


def hour_of(ts: float | None) -> int:
    """The hour of an event time since the epoch; `UNTIMED` without a time."""
    return UNTIMED if ts is None else int(ts) // HOUR


METRIC: Final = AnswerCorrect.name
"""The metric whose estimates are made more precise."""
MAX_VERSIONS: Final = 64
"""Versions of a judge that are kept apart; further ones are counted as `OTHER`, whose scores are not used."""
VERSION_CHARS: Final = 64
MODULUS: Final = 1 << 63
"""Sums over all time are kept modulo this: the squares of ten million labels are more than MessagePack can say."""
NO_LABELS: Final = (0, 0, 0, 0, 0, 0)


class Judged(NamedTuple):
    """Answers with a score of one judge version."""

    pipeline: str
    stratum: str
    proxy: str
    version: str


@dataclass(frozen=True)
class JudgeVersion:
    """A version of a judge that scored answers.

    Attributes:
        pipeline: The pipeline of the answers.
        judge: The judge's metric.
        version: Its version; "" where the records name none.
        answers: How many answers it scored.
        first: The start of the hour of the first one, seconds since the epoch; None without a time.
        last: The start of the hour of the last one, likewise.
    """

    pipeline: str
    judge: str
    version: str
    answers: int
    first: int | None
    last: int | None


class Cohorts(msgspec.Struct):
    """Labels and proxies by the hour of the answer; user traffic that the uniform sampler kept.

    Attributes:
        answers: By pipeline, stratum and hour, the number of answers, and of those with a known outcome.
        proxies: By judge version and hour, `[n, sum]` of the scores of all answers.
        labels: By judge version, hour of the answer, and start of the step in which the label counts,
            `[n, y, y², f, f², y f]` of label y and proxy f.
        past: By judge version, the sums of expired hours and steps: `[n, sum]` of proxies, then those of labels.
        versions: By pipeline, proxy and version: the first hour, the last hour, and the number of scored answers.
    """

    answers: dict[tuple[str, str, int], Sums] = {}
    proxies: dict[Judged, dict[int, Sums]] = {}
    labels: dict[Judged, dict[int, dict[int, Sums]]] = {}
    past: dict[Judged, Sums] = {}
    versions: dict[tuple[str, str, str], Sums] = {}

    def see(self, pipeline: str, stratum: str, ts: float | None, answers: int, *, known: int, shipped: int) -> None:
        """Count the answers of an hour: all, those with a known outcome, and those that a label may rate."""
        add_sums(self.answers, (pipeline, stratum, hour_of(ts)), (answers, known, shipped))

    def see_scores(
        self, pipeline: str, stratum: str, ts: float | None, scores: Mapping[str, int], versions: Mapping[str, str]
    ) -> None:
        """Count the proxies that an answer has, in micro-units, with the versions of their judges."""
        hour = hour_of(ts)
        for proxy, score in scores.items():
            version = versions.get(proxy, "")[:VERSION_CHARS]
            seen = self.versions.get((pipeline, proxy, version))
            if seen is None:
                if sum(key[:2] == (pipeline, proxy) for key in self.versions) >= MAX_VERSIONS:
                    version = OTHER
                seen = self.versions.setdefault((pipeline, proxy, version), [hour, hour, 0])
            seen[:] = [min(seen[0], hour), max(seen[1], hour), seen[2] + 1]
            add_sums(self.proxies.setdefault(Judged(pipeline, stratum, proxy, version), {}), hour, (1, score))

    def see_label(
        self,
        pipeline: str,
        stratum: str,
        answered: float | None,
        ts: float | None,
        measured: Mapping[str, int],
        versions: Mapping[str, str],
    ) -> None:
        """Count the label of an answer with each proxy that the answer has, in micro-units.

        `answered` is when the answer was given, `ts` when the label counts in windows.
        """
        label = measured.get(METRIC)
        if label is None:
            return
        hour, step = hour_of(answered), step_of(ts)
        for proxy, score in measured.items():
            if proxy != METRIC:
                version = versions.get(proxy, "")[:VERSION_CHARS]
                version = version if (pipeline, proxy, version) in self.versions else OTHER
                hours = self.labels.setdefault(Judged(pipeline, stratum, proxy, version), {})
                sums = (1, label, label * label, score, score * score, label * score)
                add_sums(hours.setdefault(hour, {}), step, sums)

    def arrived(self, judged: Judged, begin: float | None, end: float) -> dict[int, Sums]:
        """The sums of labels by the hour of their answers: of labels that count from `begin` to `end`; None for all."""
        sums: dict[int, Sums] = {}
        for hour, steps in self.labels.get(judged, {}).items():
            for step, counts in steps.items():
                if begin is None or begin <= step < end:
                    add_sums(sums, hour, counts)
        return sums

    def labellable(self, since: float) -> dict[str, int]:
        """By pipeline, the answers to users in the uniform sample that a label may rate, from the hour of a time on."""
        found: dict[str, int] = {}
        for (pipeline, _, hour), (_, _, shipped) in self.answers.items():
            if hour >= since // HOUR:
                found[pipeline] = found.get(pipeline, 0) + shipped
        return found

    def judges(self) -> list[JudgeVersion]:
        """The versions of every judge, the newest last."""
        return [
            JudgeVersion(*key, n, None if first < 0 else first * HOUR, None if last < 0 else last * HOUR)
            for key, (first, last, n) in sorted(
                self.versions.items(), key=lambda entry: (*entry[0][:2], entry[1][1], entry[0])
            )
            if key[1].startswith(JUDGE_PREFIX)
        ]

    def fold(self, now: float, retention: float | None) -> None:
        """Fold steps that are no longer fresh, and drop labels and answers that no window can reach.

        Labels are kept for the retention in seconds, answers as much longer as a label may take; None keeps all.
        """
        for hours in self.labels.values():
            for steps in hours.values():
                for step in [
                    step for step in steps if step != UNTIMED and step % FOLDED_SECONDS and step < now - FRESH
                ]:
                    add_sums(steps, slot(step), steps.pop(step))
        if retention is None:
            return
        oldest = now - retention
        for judged, hours in self.labels.items():
            for hour, steps in list(hours.items()):
                for step in [step for step in steps if UNTIMED < step < oldest - FOLDED_SECONDS]:
                    self._add_past(judged, (0, 0, *steps.pop(step)))
                if not steps:
                    del hours[hour]
        before = int(oldest - TTL) // HOUR
        self.answers = {key: counts for key, counts in self.answers.items() if not 0 <= key[2] < before}
        for judged, by_hour in self.proxies.items():
            for hour in [hour for hour in by_hour if 0 <= hour < before]:
                self._add_past(judged, (*by_hour.pop(hour), *NO_LABELS))

    def _add_past(self, judged: Judged, counts: Iterable[int]) -> None:
        add_sums(self.past, judged, counts)
        self.past[judged] = [n % MODULUS for n in self.past[judged]]

    def merge(self, other: Cohorts) -> None:
        """Add other cohorts; the order of merging does not matter."""
        for key, counts in other.answers.items():
            add_sums(self.answers, key, counts)
        for judged, by_hour in other.proxies.items():
            for hour, counts in by_hour.items():
                add_sums(self.proxies.setdefault(judged, {}), hour, counts)
        for judged, hours in other.labels.items():
            for hour, steps in hours.items():
                for step, counts in steps.items():
                    add_sums(self.labels.setdefault(judged, {}).setdefault(hour, {}), step, counts)
        for judged, counts in other.past.items():
            self._add_past(judged, counts)
        for version, (first, last, n) in other.versions.items():
            own = self.versions.setdefault(version, [first, last, 0])
            own[:] = [min(own[0], first), max(own[1], last), own[2] + n]

    def rename(self, pipeline_of: Callable[[str], str]) -> None:
        """Move everything to the pipelines it is to be counted under."""
        for pipeline in sorted({key[0] for table in self._tables() for key in table}):
            name = pipeline_of(pipeline)
            if name != pipeline:
                self.merge(Cohorts(*(_moved(table, pipeline, name) for table in self._tables())))

    def give_up(self, pipeline: str) -> None:
        """Remove a pipeline."""
        for table in self._tables():
            _moved(table, pipeline, "")

    def _tables(self) -> tuple[dict[Any, Any], ...]:
        return self.answers, self.proxies, self.labels, self.past, self.versions

    def reset_labels(self) -> None:
        """Remove every label, so that a report counts them anew."""
        self.labels.clear()

    def to_rows(self) -> list[Any]:
        """The sums over all time of every judge version, in canonical order."""
        sums = {judged: list(counts) for judged, counts in self.past.items()}
        for judged, by_hour in self.proxies.items():
            for counts in by_hour.values():
                add_sums(sums, judged, (*counts, *NO_LABELS))
        for judged, hours in self.labels.items():
            for steps in hours.values():
                for counts in steps.values():
                    add_sums(sums, judged, (0, 0, *counts))
        return [[*judged, *(n % MODULUS for n in sums[judged])] for judged in sorted(sums)]


def _moved(table: dict[Any, Any], pipeline: str, name: str) -> dict[Any, Any]:
    return {
        key._replace(pipeline=name) if isinstance(key, Judged) else (name, *key[1:]): table.pop(key)
        for key in [key for key in table if key[0] == pipeline]
    }
