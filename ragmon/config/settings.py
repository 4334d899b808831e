"""The resolved configuration: what everything else reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ragmon.config.services import ExportTable, JudgeTable, LabelsTable, LinksTable, ServeTable
from ragmon.config.tables import AlarmsTable, CaptureTable, MetricsTable, OnInsufficient, SamplingTable
from ragmon.core import constants
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import ConfigError
from ragmon.core.gold_item import Match
from ragmon.core.policy import LABELLED, Gate, Mode, Policy
from ragmon.core.refusal import RefusalRule
from ragmon.metrics import Metric, base, build
from ragmon.metrics.base import judged
from ragmon.metrics.grounding import Groundedness


@dataclass(frozen=True)
class GoldSpec:
    """A gold set to load.

    Attributes:
        name: How gates and series call it.
        paths: Its files, relative ones already joined to the folder of the file that names them.
        pipeline: The pipeline it judges; None for any.
        use: Which records may match it.
        tags: Slices every item belongs to.
        match: How gold texts are compared with contexts.
        frozen: What was frozen of it; None: whatever its files say is taken.
        key_file: The secret that is signed with.
        embed: The function that makes vectors of texts; None: wordings alone are matched.
    """

    name: str
    paths: tuple[Path, ...]
    pipeline: str | None
    use: tuple[str, ...]
    tags: Mapping[str, str]
    match: Match
    frozen: Path | None = None
    key_file: Path | None = None
    embed: str | None = None


@dataclass(frozen=True)
class ProbeSpec:
    """Gold questions to send; the attributes are the keys of `[probe.NAME]`, times in seconds."""

    name: str
    pipeline: str
    gold: str
    target: str
    every: float
    max_per_day: int
    concurrency: int
    timeout: float
    headers: Mapping[str, str] = field(repr=False)
    body: str
    answer: Mapping[str, str]
    on_look: bool

    @property
    def asks(self) -> str:
        """The target as it may be shown: a login and what stands in a query are secrets."""
        scheme, slashes, rest = self.target.partition("?")[0].rpartition("//")
        return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


@dataclass(frozen=True)
class PipelineSettings:
    """What holds for one pipeline.

    Attributes:
        name: The pipeline.
        sampling, capture, refusal, slices, metrics: What is kept, seen and computed.
        gates: In the order they are reported; a gate without a source takes the first that has data.
        mode: How verdicts are given.
        on_insufficient: What too little data means for the whole.
        alarms, judges, labels, links, export: The tables of these names.
        probed: Gold questions are sent through it.
    """

    name: str
    sampling: SamplingTable
    capture: CaptureTable
    refusal: RefusalRule
    slices: Mapping[str, tuple[str, ...]]
    metrics: MetricsTable
    gates: tuple[Gate, ...]
    mode: Mode
    on_insufficient: OnInsufficient
    alarms: AlarmsTable
    judges: Mapping[str, JudgeTable]
    labels: LabelsTable
    links: LinksTable
    export: ExportTable
    probed: bool = False

    @property
    def proxy(self) -> str:
        """The score by which labels are made more certain."""
        judges = [f"{JUDGE_PREFIX}{name}" for name in sorted(self.judges)]
        return self.labels.proxy or next(iter(judges), Groundedness.name)


@dataclass(frozen=True)
class Settings:
    """Everything ragmon.toml, the environment and the defaults say together.

    Attributes:
        path: The main file; None for the built-in defaults.
        build: The application's build; "" where nobody says.
        service: Its OpenTelemetry service name; "" where nobody says.
        disabled: Nothing is captured.
        windows: Spans in seconds by name.
        plugins: Modules that register metrics.
        pipeline: The name of calls that name no pipeline.
        pipelines: The pipelines that are configured, by name.
        common: What holds for a pipeline nobody configured.
        gold: The gold sets; one that belongs to a pipeline stands before those for any.
        probes: What is sent.
        alarms, judges, labels, links, export: The tables at the top of the file.
        serve: The server.
        values: Every value by its dotted key.
        origins: Where each of `values` comes from: `default`, `ragmon.toml:12`, `environment RAGMON_SAMPLE`.
    """

    path: Path | None
    build: str
    service: str
    disabled: bool
    windows: Mapping[str, int]
    plugins: tuple[str, ...]
    pipeline: str
    pipelines: Mapping[str, PipelineSettings]
    common: PipelineSettings
    gold: tuple[GoldSpec, ...]
    probes: tuple[ProbeSpec, ...]
    alarms: AlarmsTable
    judges: Mapping[str, JudgeTable]
    labels: LabelsTable
    links: LinksTable
    serve: ServeTable
    export: ExportTable
    values: Mapping[str, object] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)

    def of(self, pipeline: str) -> PipelineSettings:
        """The settings of a pipeline; one nobody configured has those at the top of the file."""
        found = self.pipelines.get(pipeline)
        if found is not None:
            return found
        gates = tuple(replace(gate, pipeline=pipeline) for gate in self.common.gates)
        return replace(self.common, name=pipeline, gates=gates)

    def policy(self, pipeline: str | None = None, *, live: bool = False) -> Policy:
        """The gates, ready to be judged.

        Args:
            pipeline: Those of one pipeline; None for all that are configured.
            live: Gates that name no source get their default one; otherwise they take the first that has data,
                which is what files need whose records name none.

        Raises:
            ConfigError: The pipelines give their verdicts in different ways, so they have no joint verdict.
        """
        chosen = [self.of(pipeline)] if pipeline is not None else list(self.pipelines.values())
        ways = {(one.mode, one.on_insufficient) for one in chosen}
        if len(ways) > 1:
            raise ConfigError(
                "the pipelines differ in gates.verdict or gates.on_insufficient",
                path=str(self.path or ""),
                hint=f"judge one at a time: {', '.join(self.pipelines)}",
            )
        mode, on_insufficient = ways.pop()
        gates = [
            replace(gate, source=default_source(gate, probed=one.probed)) if live and gate.source is None else gate
            for one in chosen
            for gate in one.gates
        ]
        return Policy(
            tuple(gates),
            mode=mode,
            on_insufficient=on_insufficient,
            windows=self.windows,
            false_pages_per_30d=self.alarms.false_pages_per_30d,
            looks_per_day=self.alarms.looks_per_day,
        )

    def build_metrics(self) -> dict[str, Metric]:
        """Every metric that is counted, by key: all registered ones at the configured cuts, judges', and gates'."""
        shared = (self.common, *self.pipelines.values())
        ks = sorted({k for one in shared for k in one.metrics.k})
        judges = (judged(name)() for name in sorted({name for one in shared for name in one.judges}))
        gates = (gate for one in self.pipelines.values() for gate in one.gates if gate.kind == "threshold")
        scores = {metric.key: metric for metric in judges}
        return {**build(ks), **scores, **{gate.metric: base.parse(gate.metric) for gate in gates}}


def default_source(gate: Gate, *, probed: bool) -> str:
    """The source of a gate that names none.

    Args:
        gate: The gate.
        probed: Gold questions are sent through its pipeline.
    """
    if gate.kind != "threshold":
        return constants.LIVE
    if gate.metric in LABELLED:
        return constants.LABEL
    if not base.parse(gate.metric).needs_gold and gate.gold is None:
        return constants.LIVE
    return constants.PROBE if probed else constants.MATCH
