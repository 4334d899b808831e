"""What rules are for: deployments told apart by their labels, and pipelines with the same gates.

The gates of the top level of ragmon.toml are those of every pipeline without gates of its own, also of pipelines that
no configuration names and that come with their first record. A list of names could not hold those, so their rules
select all pipelines but the ones that have rules of their own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from ragmon.config.settings import PipelineSettings, Settings
from ragmon.core.errors import RagmonError
from ragmon.core.policy import Gate
from ragmon.core.series_names import label
from ragmon.export.promql import equals, one_of, selector

_MATCHER: Final = r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(?:=~|!~|!=|=)\s*"(?:[^"\\]|\\.)*"\s*'


@dataclass(frozen=True)
class Deployments:
    """The deployments of ragmon that rules are for.

    Args:
        by: The labels that tell them apart: every aggregation keeps them.
        matchers: What every series must match, as PromQL; empty for all deployments.
    """

    by: tuple[str, ...] = ()
    matchers: str = ""

    @classmethod
    def of(cls, by: Sequence[str], matchers: str) -> Self:
        """Deployments of some matchers; the labels that these name are kept, so that recorded series match as well.

        >>> Deployments.of(["env"], 'cluster=~"a|b"')
        Deployments(by=('env', 'cluster'), matchers='cluster=~"a|b"')
        """
        if matchers and not re.fullmatch(f"{_MATCHER}(?:,{_MATCHER})*,?", matchers):
            raise RagmonError(f"--selector is no list of matchers: {matchers}", hint="""--selector 'env="prod"'""")
        named = [match[1] for match in re.finditer(_MATCHER, matchers)]
        return cls(tuple(dict.fromkeys((*by, *named))), matchers.strip().removesuffix(","))

    def series(self, name: str, *matchers: str) -> str:
        """A selector for a series of the deployments."""
        return selector(name, None, *matchers, *([self.matchers] if self.matchers else []))

    def labels(self, *names: str) -> str:
        """Some labels and those that tell deployments apart, for `by (…)` and `on (…)`."""
        return ", ".join(dict.fromkeys((*names, *self.by)))

    def total(self, series: str, window: str, *labels: str) -> str:
        """The increase of a counter, summed over replicas and all labels but these."""
        return f"sum by ({self.labels(*labels)}) (increase({series}[{window}]))"


@dataclass(frozen=True)
class RuleScope:
    """Pipelines that share their rules.

    Attributes:
        settings: The settings they share.
        gates: Their gates, with the source they are judged on live; those of several pipelines name none.
        names: The configured ones among them.
        matchers: Select their series; empty for all pipelines.
        unnamed: Whether pipelines that no configuration names are among them.
        shared: Whether they are the pipelines with the gates of the top level; else it is one with its own.
    """

    settings: PipelineSettings
    gates: tuple[Gate, ...]
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


def rule_scopes(settings: Settings, configured_only: bool = False) -> list[RuleScope]:
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
    common = _gates(settings.unconfigured, settings)
    shared = tuple(name for name, own in settings.pipelines.items() if _gates(own, settings) == common)
    others = tuple(name for name in settings.pipelines if name not in shared)
    matchers = (one_of("pipeline", others, others=True),) if others else ()
    if configured_only:
        matchers = (one_of("pipeline", shared),)
    top = RuleScope(settings.unconfigured, common, shared, matchers, unnamed=not configured_only, shared=True)
    scopes = [top] if shared or not configured_only else []
    return scopes + [_own_scope(settings.pipelines[name], settings) for name in others]


def _own_scope(pipeline: PipelineSettings, settings: Settings) -> RuleScope:
    gates = tuple(replace(gate, pipeline=pipeline.name) for gate in _gates(pipeline, settings))
    matchers = (equals("pipeline", pipeline.name),)
    return RuleScope(pipeline, gates, (pipeline.name,), matchers, unnamed=False, shared=False)


def _gates(pipeline: PipelineSettings, settings: Settings) -> tuple[Gate, ...]:
    """The gates of a pipeline without its name; pipelines where they are equal share their rules."""
    alone = replace(settings, pipelines={pipeline.name: pipeline})
    return tuple(replace(gate, pipeline="") for gate in alone.policy(pipeline.name, live=True).gates)


def pipelines(scopes: Sequence[RuleScope], excluded: str) -> str:
    """A matcher for all pipelines that rules are for.

    Args:
        scopes: The scopes.
        excluded: A name that stands for no pipeline.
    """
    if any(scope.unnamed for scope in scopes):
        return one_of("pipeline", [excluded], others=True)
    return one_of("pipeline", [name for scope in scopes for name in scope.names])
