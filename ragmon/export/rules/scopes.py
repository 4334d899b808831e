"""Scopes of rules: pipelines with the same gates and limits share their rules, and are selected by a pattern.

The gates of the top level of ragmon.toml are those of every pipeline without gates of its own, also of pipelines that
no configuration names and that come with their first record. A list of names could not hold those, so their rules
select all pipelines but the ones that have rules of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.errors import RagmonError
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.promql import equals, one_of

ROUND: Final = 3600.0
"""Seconds between two rounds of probes by default."""


@dataclass(frozen=True)
class RuleScope:
    """Pipelines that share their rules.

    Attributes:
        settings: The settings they share.
        gates: Their gates, with the source they are judged on live; those of several pipelines name none.
        span: The time of two rounds of probes, as PromQL writes it.
        names: The configured ones among them; these are expected before their first record.
        matchers: Select their series; empty for all pipelines.
        unnamed: Whether pipelines that no configuration names are among them.
        shared: Whether they are the pipelines with the gates of the top level; else it is one with its own.
    """

    settings: PipelineSettings
    gates: tuple[Gate, ...]
    span: str
    names: tuple[str, ...]
    matchers: tuple[str, ...]
    unnamed: bool
    shared: bool

    @property
    def labels(self) -> dict[str, str]:
        """The labels that tell the rules of a pipeline with gates of its own from those by pattern."""
        return {} if self.shared else {"pipeline": label(self.settings.name)}

    @property
    def share_gates(self) -> tuple[Gate, ...]:
        """The gates on shares, which have counters."""
        return tuple(gate for gate in self.gates if gate.kind == "threshold")


def rule_scopes(settings: Settings, *, configured_only: bool = False) -> list[RuleScope]:
    """The scopes of a configuration; that of the top level is the first.

    Args:
        settings: The configuration.
        configured_only: Without rules for pipelines that the configuration does not name.

    Raises:
        RagmonError: The configuration names no pipeline, and only such are asked for.
    """
    if configured_only and not settings.pipelines:
        hint = "[pipeline] name, or [pipelines.NAME]; else leave --configured-only out"
        raise RagmonError("the configuration names no pipeline that rules could be for", hint=hint)
    common = _content(settings.unconfigured, settings)
    shared = tuple(name for name, own in settings.pipelines.items() if _content(own, settings) == common)
    others = tuple(name for name in settings.pipelines if name not in shared)
    matchers = (one_of("pipeline", others, others=True),) if others else ()
    if configured_only:
        matchers = (one_of("pipeline", shared),)
    gates, span, _ = common
    top = RuleScope(settings.unconfigured, gates, span, shared, matchers, unnamed=not configured_only, shared=True)
    scopes = [top] if shared or not configured_only else []
    return scopes + [_own_scope(settings.pipelines[name], settings) for name in others]


def _own_scope(pipeline: PipelineSettings, settings: Settings) -> RuleScope:
    gates, span, _ = _content(pipeline, settings)
    gates = tuple(replace(gate, pipeline=pipeline.name) for gate in gates)
    return RuleScope(
        pipeline, gates, span, (pipeline.name,), (equals("pipeline", pipeline.name),), unnamed=False, shared=False
    )


def _content(pipeline: PipelineSettings, settings: Settings) -> tuple[tuple[Gate, ...], str, float | None]:
    """What the rules of a pipeline are made from; pipelines where it is equal share their rules."""
    alone = replace(settings, pipelines={pipeline.name: pipeline})
    gates = tuple(replace(gate, pipeline="") for gate in alone.policy(pipeline.name, live=True).gates)
    limit = pipeline.metrics.answered_within
    return gates, _span(pipeline, settings), None if limit is None else float(limit)


def _span(pipeline: PipelineSettings, settings: Settings) -> str:
    """The time of two rounds of the probes of a pipeline."""
    rounds = [probe.every for probe in settings.probes if pipeline.has_probe and probe.pipeline == pipeline.name]
    return f"{round(2 * max(ROUND, *rounds) / 60)}m" if rounds else f"{round(2 * ROUND / 60)}m"


def configured_names(scopes: Sequence[RuleScope]) -> list[str]:
    """The configured pipelines of all scopes."""
    return [name for scope in scopes for name in scope.names]
