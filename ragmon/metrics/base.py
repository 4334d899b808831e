"""The base class of metrics, the registry of all metrics, and the metric of a judge.

A new metric is one class::

    @ragmon.register
    class CitesNothing(ragmon.Metric):
        \"\"\"Share of shipped answers without a single citation.\"\"\"

        name = "cites_nothing_rate"
        better = "lower"

        def score(self, facts):
            return float(not facts.cites_retrieved) if facts.shipped else None

From then on it is counted in every window, exported, judged by gates and written into reports.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar, Final, Literal, TypeVar

from ragmon.core.constants import JUDGE_PREFIX, RESERVED_ENDINGS, RESERVED_NAMES
from ragmon.core.errors import RagmonError, UnknownNameError, shorten
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Record
from ragmon.metrics.facts import DEPTH, Facts

Better = Literal["higher", "lower"]
Area = Literal["answers", "retrieval", "traffic"]
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


DEPTH_HINT: Final = f"at most {DEPTH}: ranks are kept to that depth"


class DepthError(RagmonError):
    """A metric is cut at a rank that is not kept."""


class Metric:
    """A mean of per-request scores.

    Subclasses set the class attributes and define `score` or `measure`; the first line of the docstring becomes the
    HELP text of the exported series.

    Attributes:
        name: The series name, lower case with underscores.
        better: Which direction is good.
        needs_gold: It is computed only for requests that match a gold item.
        at_k: It exists once for the whole list and once for every configured k.
        k: The cut of this instance, at most `DEPTH`; None means the whole list.
        reads: For a measured metric, the field of the record without which it cannot be measured; "" measures every
            record.
        binary: Every score is 0 or 1, so the sum of squares is the sum.
        area: What it is about: the answers, the retrieval, or the traffic.
        labelled: It is known only for answers that people have labelled.
        cites: It is about what answers cite, and says nothing of a pipeline whose answers never cite anything.
        compares_ids: It compares retrieved ids with gold's, and says nothing of a pipeline whose ids are not in gold.
        of_requests: It is about requests as they come, whatever they ask: an error, a latency. Its intervals in windows
            are those of single requests, and not of sessions and questions.
        default_gate: `("at_least" | "at_most", threshold)` of the default gate, where the metric has one.

    Examples:
        >>> import ragmon
        >>> class CitesNothing(ragmon.Metric):
        ...     '''Share of shipped answers that cite nothing that was retrieved.'''
        ...     name = "cites_nothing_rate"
        ...     better = "lower"
        ...     def score(self, facts):
        ...         return float(not facts.cites_retrieved) if facts.shipped else None
        >>> ragmon.testing.check_metric(CitesNothing(), [ragmon.testing.make_record()])
    """

    name: ClassVar[str]
    better: ClassVar[Better] = "higher"
    needs_gold: ClassVar[bool] = False
    at_k: ClassVar[bool] = False
    reads: ClassVar[str] = ""
    binary: ClassVar[bool] = False
    area: ClassVar[Area] = "answers"
    labelled: ClassVar[bool] = False
    cites: ClassVar[bool] = False
    compares_ids: ClassVar[bool] = False
    of_requests: ClassVar[bool] = False
    default_gate: ClassVar[tuple[Literal["at_least", "at_most"], float] | None] = None

    def __init__(self, k: int | None = None) -> None:
        if k is not None and k > DEPTH:
            raise DepthError(f"{self.name}@{k}: k is {k}", hint=DEPTH_HINT)
        self.k = k

    @property
    def key(self) -> str:
        """The name with its cut: `recall@5`."""
        return self.name if self.k is None else f"{self.name}@{self.k}"

    @property
    def help(self) -> str:
        """The first line of the docstring."""
        return (self.__doc__ or self.name).strip().splitlines()[0]

    def score(self, facts: Facts) -> float | None:
        """The score of one request.

        Returns:
            A number in [0, 1], or None when the request is not in the denominator.

        Raises:
            Unassessed: A fact it needs is unknown; the properties of `Facts` raise it.
        """
        return None

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        """The score of one request, read from its text; runs once per sampled record, before text is dropped.

        Returns:
            A number in [0, 1], or None when it cannot be measured on this record.
        """
        return None

    def applies(self, facts: Facts) -> bool:
        """For a measured metric: whether a request with these facts is in its denominator.

        Raises:
            Unassessed: It is in the denominator, but could not be measured.
        """
        return True

    def expects_score(self, facts: Facts) -> bool:
        """For a measured metric that applies: whether a request is in its denominator although it was not measured.

        Estimates over all calls weigh a stratum by the requests in the denominator, measured or not.
        """
        return True

    @property
    def measured(self) -> bool:
        """Whether this metric reads text instead of facts."""
        return type(self).measure is not Metric.measure


_families: dict[str, type[Metric]] = {}
M = TypeVar("M", bound=type[Metric])


def register(family: M) -> M:
    """Add a metric class to the registry; usable as a decorator.

    Args:
        family: A subclass of `ragmon.Metric` with a `name`, and with `score` or `measure`.

    Returns:
        The class.

    Raises:
        RagmonError: The name is taken, malformed or reserved, or the class defines neither score nor measure.

    Examples:
        >>> import ragmon
        >>> @ragmon.register
        ... class LongAnswers(ragmon.Metric):
        ...     '''Share of answers that are longer than 400 characters.'''
        ...     name = "long_answers_rate"
        ...     better = "lower"
        ...     def measure(self, record, item):
        ...         claim = record.answer_json and record.answer_json.claim
        ...         return None if claim is None else float(len(claim) > 400)
        >>> ragmon.replay([ragmon.testing.make_record(claim="At 9.")]).metric("long_answers_rate").value
        0.0
    """
    name = getattr(family, "name", "")
    if not _NAME.match(name):
        raise RagmonError(f"metric name {shorten(name)} is not usable", hint="lower-case letters, digits, underscores")
    suffix = next((s for s in RESERVED_ENDINGS if name.endswith(s)), None)
    if suffix:
        raise RagmonError(
            f"metric name {name!r} ends in {suffix!r}", hint=f"{', '.join(RESERVED_ENDINGS)} mean something else"
        )
    if name in RESERVED_NAMES:
        raise RagmonError(f"metric name {name!r} is taken", hint=f"rag_{name} is a series of its own; choose another")
    if name in _families and _families[name].__qualname__ != family.__qualname__:
        raise RagmonError(f"metric {name!r} is registered already", hint="a metric's rule never changes under its name")
    if family.score is Metric.score and family.measure is Metric.measure:
        raise RagmonError(f"metric {name!r} defines neither score nor measure", hint="define one of them")
    _families[name] = family
    return family


def families() -> dict[str, type[Metric]]:
    """All registered metric classes by name."""
    return dict(_families)


def build(ks: Sequence[int] = (1, 3, 5, 10)) -> dict[str, Metric]:
    """One instance of every metric by key; of a metric with a cut also one for every k."""
    instances = [family(k) for family in _families.values() for k in ((None, *ks) if family.at_k else (None,))]
    return {metric.key: metric for metric in instances}


def parse(key: str) -> Metric:
    """The metric of a key: `recall@7` is `recall` cut at 7.

    Raises:
        UnknownNameError: There is no such metric, or it has no cut.
        DepthError: The cut is beyond the depth to which ranks are kept.
    """
    name, at, k = key.partition("@")
    family = _families.get(name)
    if family is None or (at and not (family.at_k and k.isdecimal() and int(k) > 0)):
        raise UnknownNameError("metric", key, [f"{n}@5" if k and f.at_k else n for n, f in _families.items()])
    return family(int(k)) if k else family()


def is_labelled(key: str) -> bool:
    """Whether the metric of a key is known only for labelled answers; a judge's metric needs no registration."""
    family = _families.get(key.partition("@")[0])
    return family is not None and family.labelled


class JudgeMetric(Metric):
    """Mean score of a judge over the requests it judged."""

    reads = "measures"

    def measure(self, record: Record, item: GoldItem | None) -> float | None:
        """The score that is in the record; the judge is not called here."""
        return None if record.measures is None else record.measures.get(self.key)

    def expects_score(self, facts: Facts) -> bool:
        """Only shipped answers are sent to a judge."""
        return facts.answered and facts.shipped


def judged(name: str) -> type[JudgeMetric]:
    """The metric class of the judge with this name.

    >>> judged("tone")().key
    'judge_tone'
    """
    doc = f"Mean score of the judge {name} over the requests it judged."
    # The registry compares class names, so a module may be loaded more than once.
    return type(f"Judged_{name}", (JudgeMetric,), {"name": f"{JUDGE_PREFIX}{name}", "__doc__": doc})
