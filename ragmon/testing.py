"""Helpers for tests of code that uses ragmon: records, gold sets, a clock, what calls recorded, metric laws.

`ragmon.pytest_plugin` makes a fixture of `Recorder`.

>>> from ragmon.testing import make_record
>>> make_record("a", claim="yes", citations=["d1"]).answer_json.citations
['d1']
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self

from msgspec import structs

from ragmon.capture.call import install_runtime
from ragmon.config.load import defaults, load
from ragmon.config.services import ExportTable
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.errors import Unassessed
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Answer, Record
from ragmon.export.report import Report
from ragmon.ingest.gold import GoldSet
from ragmon.metrics.base import Metric
from ragmon.metrics.facts import FactReader, Facts
from ragmon.monitor.install import Installation
from ragmon.monitor.replay import Gold, replay


def make_record(
    qid: str | None = None,
    *,
    claim: Any = "an answer",
    citations: Sequence[str] | None = ("d1",),
    retrieved: Sequence[str] | None = ("d1", "d2", "d3"),
    **fields: Any,
) -> Record:
    """A record with defaults of a healthy answer.

    Args:
        qid: The gold question's id.
        claim: The answer's text; None for no answer.
        citations: The ids it cites; None for no citation list.
        retrieved: The retrieved ids; None if retrieval was not captured.
        fields: Any other field of `ragmon.core.record.Record`.

    Examples:
        >>> make_record("a", claim="yes", citations=["d1"], build="1.4.2").build
        '1.4.2'
    """
    return Record(
        qid=qid,
        retrieved_ids=None if retrieved is None else list(retrieved),
        answer_json=Answer(claim=claim, citations=None if citations is None else list(citations)),
        **fields,
    )


def make_gold(*items: GoldItem | tuple[str, bool], name: str = "gold", **fields: Any) -> GoldSet:
    """A gold set from items, or from `(qid, answerable)` pairs whose gold document is `d1`.

    Examples:
        >>> gold = make_gold(("a", True), ("b", False))
        >>> [item.answerable for item in gold.items]
        [True, False]
    """

    def made(qid: str, answerable: bool) -> GoldItem:
        phrases, citations = (["answer"], ["d1"]) if answerable else (None, None)
        return GoldItem(qid, f"question {qid}", answerable, claim_substrings=phrases, citations=citations)

    return GoldSet(name, tuple(item if isinstance(item, GoldItem) else made(*item) for item in items), **fields)


@dataclass
class FakeClock:
    """A clock that moves only when `advance` is called; give it to `ragmon.Monitor(clock=...)`.

    Examples:
        >>> clock = FakeClock(100.0)
        >>> clock.advance(5)
        >>> clock()
        105.0
    """

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        """The current time of the clock."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Move the clock forward by so many seconds."""
        self.now += seconds


@dataclass
class Collected:
    """An exporter that keeps its records in a list; give it to `ragmon.install(sink=...)`."""

    records: list[Record] = field(default_factory=list)

    def submit(self, record: Record) -> None:
        """Append a record."""
        self.records.append(record)


class Recorder:
    """Records what decorated calls do, every call whatever its sampling rate, and judges it by the gates.

    It uses the configuration and the gold that `ragmon gate` would use in the same folder, exports nothing and asks no
    judge. `ragmon.install` changes nothing inside the block.

    Attributes:
        records: The records; after `report`, and when the block has ended, those of all calls that have returned.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     return {"answer": "yes", "citations": ["d1"], "documents": [{"id": "d1"}]}
        >>> with Recorder() as recorder:
        ...     _ = answer("Is it?")
        ...     report = recorder.report()
        >>> report.metric("citation_scope").value
        1.0
    """

    def __init__(self) -> None:
        exporter, settings = Collected(), load()

        def unjudged(pipeline: PipelineSettings) -> PipelineSettings:
            return pipeline.model_copy(update={"judges": {}})

        settings = replace(
            settings,
            unconfigured=unjudged(settings.unconfigured),
            pipelines={name: unjudged(pipeline) for name, pipeline in settings.pipelines.items()},
            export=ExportTable(),
            disabled=False,
        )
        self.records = exporter.records
        self._installation = Installation(settings, exporter, keep_all=True)

    def __enter__(self) -> Self:
        self._previous = self._installation.start(alone=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._installation.shutdown()
        install_runtime(self._previous)

    def report(self, gold: Gold | None = None) -> Report:
        """Judge the calls so far as one run, by all gates, whatever source they name.

        Args:
            gold: Gold as `ragmon.replay` takes it; None takes that of the configuration.
        """
        self._installation.flush()
        return self.judge(self.records, gold)

    @staticmethod
    def judge(records: Sequence[Record], gold: Gold | None = None) -> Report:
        """Judge records of several tests as `report` judges those of one."""
        policy = load().policy(seen=dict.fromkeys(record.pipeline for record in records if record.pipeline))
        gates = tuple(replace(gate, source=None) for gate in policy.gates)
        return replay([structs.replace(record, source=None) for record in records], gold, replace(policy, gates=gates))


@contextmanager
def capture_traces(settings: Settings | None = None, *, timeout: float = 5.0) -> Iterator[list[Record]]:
    """Capture calls of decorated functions inside the block, in place of the capture that is installed outside it.

    Args:
        settings: The configuration; by default every call is kept, whatever its decorator says, and nothing is
            exported.
        timeout: Seconds to wait for the last record when the block ends.

    Yields:
        The records; the list is complete after the block.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     return {"answer": "yes", "citations": ["d1"]}
        >>> with capture_traces() as records:
        ...     _ = answer("Is it?")
        >>> records[0].q, records[0].answer_json.claim
        ('Is it?', 'yes')
    """
    exporter = Collected()
    installation = Installation(defaults() if settings is None else settings, exporter, keep_all=settings is None)
    previous = installation.start()
    try:
        yield exporter.records
    finally:
        installation.shutdown(timeout)
        install_runtime(previous)


def check_metric(metric: Metric, records: Sequence[Record], gold: GoldSet | None = None) -> None:
    """Check on some records that a metric obeys the laws of all metrics; an AssertionError says which law it breaks.

    Examples:
        >>> from ragmon.metrics.builtin import Recall
        >>> check_metric(Recall(5), [make_record("a")], make_gold(("a", True)))
    """
    reader = FactReader()
    items = {item.qid: item for item in gold or ()}
    for record in records:
        item = items.get(record.qid or "")
        if metric.measured:
            score = metric.measure(record, item)
        else:
            facts = reader.read(record, item)
            score = _score(metric, facts)
            assert score == _score(metric, facts), f"{metric.key} gives two scores for the same facts"  # noqa: S101
        assert score is None or 0.0 <= score <= 1.0, f"{metric.key} gives {score} on {record}"  # noqa: S101


def _score(metric: Metric, facts: Any) -> float | None:
    try:
        return metric.score(Facts._make(facts))
    except Unassessed:
        return None
