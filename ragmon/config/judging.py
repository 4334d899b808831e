"""The tables quality is judged by: gold sets, gates, metrics, alarms."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from ragmon.config.kinds import (
    Count,
    Duration,
    File,
    Files,
    Many,
    Name,
    Number,
    Positive,
    Seconds,
    Share,
    Table,
    Text,
    function,
    unique,
    wrong,
)
from ragmon.core.gold_item import Match
from ragmon.core.policy import MIN_SAMPLES, Estimand, Kind, Mode
from ragmon.metrics.grounding import DEFAULT_THRESHOLD

Source = Literal["probe", "match", "label", "live", "replay"]
OnInsufficient = Literal["hold", "pass", "fail"]
RESERVED: Final = ("preset", "verdict", "on_insufficient")
"""The keys of [gates] that are not gates."""


class Gold(Table):
    """A gold set.

    Attributes:
        path: Its files.
        pipeline: The pipeline it judges; None for any.
        use: Which records may match it.
        tags: Slices every item of it belongs to.
        match: How gold texts are compared with contexts.
        embed: The function that makes vectors of texts, for matching by meaning; None: wordings alone are matched.
        frozen: What `ragmon gold freeze` wrote of it; files that differ are refused.
        key_file: The secret that is signed with.
    """

    path: Files = Field(description='path = "gold.jsonl"')
    pipeline: Name | None = None
    use: Annotated[Many[Literal["probe", "match"]], AfterValidator(unique)] = ("probe", "match")
    tags: dict[str, str] = Field(default_factory=dict)
    match: Match = "exact"
    embed: Annotated[str, AfterValidator(function)] | None = None
    frozen: File | None = None
    key_file: File | None = None

    @model_validator(mode="after")
    def _key_of_something(self) -> Gold:
        if self.key_file is not None and self.frozen is None:
            raise wrong("has a key_file and nothing frozen", 'frozen = "gold.frozen.json", or leave key_file out')
        return self


class GateTable(Table):
    """A gate as it is written; `ragmon.core.policy.Gate` is what it becomes."""

    metric: Text | None = None
    at_least: Number | None = None
    at_most: Number | None = None
    source: Source | None = None
    gold: Text | None = None
    slice: dict[str, str] = Field(default_factory=dict)
    window: Text | None = None
    estimand: Estimand | None = None
    min_samples: Count = MIN_SAMPLES
    page_below: Number | None = None
    page_above: Number | None = None
    severity: Literal["page", "ticket"] = "page"
    kind: Kind = "threshold"

    @model_validator(mode="after")
    def _one_bound(self) -> GateTable:
        if self.at_least is not None and self.at_most is not None:
            raise wrong("has both at_least and at_most", "keep one: a gate is a floor or a ceiling")
        if self.at_least is None and self.at_most is None:
            raise wrong("has no threshold", "at_least = 0.80 for a floor, at_most = 0.05 for a ceiling")
        return self

    @property
    def direction(self) -> Literal["at_least", "at_most"]:
        """Which of the two bounds is set."""
        return "at_most" if self.at_least is None else "at_least"

    @property
    def threshold(self) -> float:
        """The bound that is set."""
        bounds = (self.at_least, self.at_most)
        return next(bound for bound in bounds if bound is not None)


class Gates(Table):
    """How verdicts are given, and the gates: every other key is one.

    Attributes:
        preset: A named set of gates to start from.
        verdict: `interval` judges by the interval, `point` by the bare value.
        on_insufficient: What too little data means for the whole.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, GateTable] = Field(init=False)

    preset: str | None = None
    verdict: Mode = "interval"
    on_insufficient: OnInsufficient = "hold"

    @property
    def own(self) -> dict[str, GateTable]:
        """The gates written here, by name."""
        return dict(self.__pydantic_extra__)


class Metrics(Table):
    """What is computed.

    Attributes:
        k: The cuts of ranked metrics.
        answered_within: The bound of `answered_within`; None: there is nothing to assess.
        grounded_threshold: From which groundedness an answer counts as grounded.
        cluster: What makes one observation of several requests in a step.
    """

    k: Annotated[Many[Count], AfterValidator(unique)] = (1, 3, 5, 10)
    answered_within: Duration | None = None
    grounded_threshold: Share = DEFAULT_THRESHOLD
    cluster: Annotated[Many[Literal["session", "question"]], AfterValidator(unique)] = ("session", "question")

    @property
    def answered_within_ms(self) -> float | None:
        """The bound in the unit of recorded latencies."""
        return None if self.answered_within is None else float(self.answered_within) * 1000


class Baseline(Table):
    """Where the alarms' baseline comes from: learned over a time, or read from a frozen file."""

    learn: Duration | None = None
    file: File | None = None

    @model_validator(mode="after")
    def _one_of(self) -> Baseline:
        if (self.learn is None) == (self.file is None):
            raise wrong("needs either learn or file", '{ learn = "1h" } or { file = "baseline.json" }')
        return self


class Alarms(Table):
    """The false-alarm budgets, over all detectors of a tier."""

    false_pages_per_30d: Positive = 1.0
    looks_per_day: Positive = 4.0
    baseline: Baseline = Baseline(learn=Seconds(3600))
