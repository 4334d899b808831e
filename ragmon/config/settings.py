"""The resolved configuration, read by all other packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ragmon.config.services import ExportTable, ProbeTable, RulesTable, ServeTable, StreamTable
from ragmon.config.tables import GoldTable, ScopedTable
from ragmon.core import constants
from ragmon.core.constants import JUDGE_PREFIX
from ragmon.core.errors import ConfigError
from ragmon.core.policy import Gate, Policy
from ragmon.metrics import Metric, base, build
from ragmon.metrics.base import judged
from ragmon.metrics.grounding import Groundedness


class GoldSpec(GoldTable):
    """A gold set to load: its table, whose `pipeline` is set where the table stands inside a pipeline.

    Attributes:
        name: Its name in gates and series.
    """

    name: str


class ProbeSpec(ProbeTable):
    """Gold questions to send: the table of a probe.

    Attributes:
        name: Its name.
        pipeline: The pipeline it asks.
        gold: The gold set.
    """

    name: str
    pipeline: str
    gold: str

    @property
    def asks(self) -> str:
        """The target for display: credentials and the query string are removed, because they may hold secrets."""
        scheme, slashes, rest = self.target.partition("?")[0].rpartition("//")
        return f"{scheme}{slashes}{rest.rpartition('@')[2]}"


class PipelineSettings(ScopedTable):
    """The settings of one pipeline: its tables, merged over those of the top level.

    Attributes:
        name: The pipeline.
        resolved_gates: In the order of the report; a gate without a source uses the first source that has data.
        has_probe: Whether gold questions are sent through it.
    """

    name: str
    resolved_gates: tuple[Gate, ...]
    has_probe: bool = False

    @property
    def proxy(self) -> str:
        """The score of all answers that narrows estimates from labels (prediction-powered inference)."""
        judges = [f"{JUDGE_PREFIX}{name}" for name in sorted(self.judges)]
        return self.labels.proxy or next(iter(judges), Groundedness.name)


@dataclass(frozen=True)
class Settings:
    """The whole configuration, from ragmon.toml, the environment and the defaults.

    Attributes:
        path: The main file; None for the built-in defaults.
        build: The application's build; "" if it is not set.
        service: Its OpenTelemetry service name; "" if it is not set.
        disabled: Whether capture is switched off.
        windows: Window lengths in seconds by name.
        pipeline: The default pipeline: that of calls that name none.
        pipelines: The configured pipelines by name; none where the configuration names none.
        unconfigured: The settings of all other pipelines: those of the top level of the file.
        gold: The gold sets; those of one pipeline come before those for all.
        probes: The probes.
        serve: The table of the server.
        stream: How a log is divided into chunks.
        rules: The table of generated rules.
        export: Where this process exports records.
        values: Every value by its dotted key.
        origins: The origin of each of `values`: `default`, `ragmon.toml:12`, `environment RAGMON_SAMPLE`.
    """

    path: Path | None
    build: str
    service: str
    disabled: bool
    windows: Mapping[str, int]
    pipeline: str
    pipelines: Mapping[str, PipelineSettings]
    unconfigured: PipelineSettings
    gold: tuple[GoldSpec, ...]
    probes: tuple[ProbeSpec, ...]
    serve: ServeTable
    stream: StreamTable
    rules: RulesTable
    export: ExportTable
    values: Mapping[str, object] = field(repr=False)
    origins: Mapping[str, str] = field(repr=False)

    @property
    def expected_pipelines(self) -> tuple[str, ...]:
        """The pipelines to expect before any record came: the configured ones, else the default pipeline."""
        return tuple(self.pipelines) or (self.pipeline,)

    def of(self, pipeline: str) -> PipelineSettings:
        """The settings of a pipeline; an unconfigured pipeline has those of the top level of the file."""
        configured = self.pipelines.get(pipeline)
        if configured is not None:
            return configured
        gates = tuple(replace(gate, pipeline=pipeline) for gate in self.unconfigured.resolved_gates)
        return self.unconfigured.model_copy(update={"name": pipeline, "resolved_gates": gates})

    def gates(self) -> tuple[Gate, ...]:
        """The gates of the top level and of every configured pipeline."""
        return tuple(gate for scope in (self.unconfigured, *self.pipelines.values()) for gate in scope.resolved_gates)

    def policy(self, pipeline: str | None = None, *, live: bool = False, seen: Iterable[str] = ()) -> Policy:
        """The gates as a policy.

        Args:
            pipeline: Only the gates of this pipeline; None for all configured pipelines and those that have records.
            live: Gates that name no source get their default source. Otherwise they use the first source that has
                data, because records in files may name no source.
            seen: Pipelines that have records; without any, and where none is configured, the default pipeline is
                judged, so that a run of nothing does not pass.

        Raises:
            ConfigError: The pipelines differ in how verdicts are computed, so there is no joint verdict.
        """
        names = [pipeline] if pipeline is not None else list(dict.fromkeys((*self.pipelines, *seen)))
        pipelines = [self.of(name) for name in names or [self.pipeline]]
        verdict_settings = {(settings.gates.verdict, settings.gates.on_insufficient) for settings in pipelines}
        if len(verdict_settings) > 1:
            raise ConfigError(
                "the pipelines differ in gates.verdict or gates.on_insufficient",
                path=str(self.path or ""),
                hint=f"judge one at a time: {', '.join(names)}",
            )
        mode, on_insufficient = verdict_settings.pop()
        gates = [
            replace(gate, source=default_source(gate, probed=settings.has_probe))
            if live and gate.source is None
            else gate
            for settings in pipelines
            for gate in settings.resolved_gates
        ]
        return Policy(
            tuple(gates),
            mode=mode,
            on_insufficient=on_insufficient,
            windows=self.windows,
            false_pages_per_30d=self.unconfigured.alarms.false_pages_per_30d,
            looks_per_day=self.unconfigured.alarms.looks_per_day,
            configured=tuple(self.pipelines),
            published=frozenset(settings.name for settings in pipelines if settings.metrics.citations_required),
        )

    def build_metrics(self) -> dict[str, Metric]:
        """All metrics by key: the registered ones at the configured values of k, those of judges and those of gates."""
        scopes = (self.unconfigured, *self.pipelines.values())
        gates = (gate for gate in self.gates() if gate.kind == "threshold")
        ks = sorted({k for scope in scopes for k in scope.metrics.k})
        judges = (judged(name)() for name in sorted({name for scope in scopes for name in scope.judges}))
        scores = {metric.key: metric for metric in judges}
        return {**build(ks), **scores, **{gate.metric: base.parse(gate.metric) for gate in gates}}


def default_source(gate: Gate, *, probed: bool) -> str:
    """The source of a gate that names none.

    Args:
        gate: The gate.
        probed: Whether gold questions are sent through its pipeline.
    """
    if gate.kind != "threshold":
        return constants.LIVE
    metric = base.parse(gate.metric)
    if metric.labelled:
        return constants.LABEL
    if not metric.needs_gold and gate.gold is None:
        return constants.LIVE
    return constants.PROBE if probed else constants.MATCH
