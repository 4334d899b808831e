"""Pipelines, gold sets, probes and judges, and whether the names they use exist."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import get_args

from ragmon.config.judging import Gold
from ragmon.config.models import Document
from ragmon.config.problems import Problems
from ragmon.config.scopes import Views
from ragmon.config.services import JudgeKind, Probe
from ragmon.config.settings import GoldSpec, ProbeSpec
from ragmon.core import constants
from ragmon.core.errors import nearest


@dataclass(frozen=True)
class Declared:
    """The names the rest of the file may use.

    Attributes:
        pipelines: The configured pipelines.
        default: The one of calls that name none.
        gold: Every gold set somebody wrote down, also those that are wrong.
    """

    pipelines: tuple[str, ...]
    default: str
    gold: frozenset[str]


def declared(document: Document, views: Views) -> Declared:
    """The names that are declared.

    `[pipeline]` and `[pipelines.NAME]` declare pipelines; where there is neither, all tables are those of one pipeline
    called `default`.
    """
    tables = (view.own.get("gold") for view in views.values())
    gold = frozenset(name for table in tables if isinstance(table, dict) for name in table)
    pipelines = tuple(name for name in views if name is not None)
    default = document.pipeline.name
    if "pipeline" not in views[None].own:
        default = pipelines[0] if len(pipelines) == 1 else default
        return Declared(pipelines or (default,), default, gold)
    return Declared(pipelines if default in pipelines else (default, *pipelines), default, gold)


def gold_specs(views: Views, known: Declared, problems: Problems) -> tuple[GoldSpec, ...]:
    """The gold sets, those of one pipeline first: where two hold the same question, the nearer one wins."""
    found: dict[str, GoldSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.tables.gold.items():
            report = partial(problems.report, scope=view.scope)
            if name in found:
                hint = "gold sets are told apart by their names in every series: choose another"
                report(("gold", name), "is defined twice", hint=hint)
            if name == constants.LABELS:
                hint = "what people say of answers is shown as gold of this name: choose another"
                report(("gold", name), "is taken", hint=hint)
            _check_pipeline(("gold", name, "pipeline"), table, pipeline, known, report)
            rest = {key: value for key, value in table if key not in ("path", "pipeline")}
            found[name] = GoldSpec(name, table.path, table.pipeline or pipeline, **rest)
    return tuple(sorted(found.values(), key=lambda spec: spec.pipeline is None))


def _check_pipeline(
    path: tuple[str, ...], table: Gold, inside: str | None, known: Declared, report: Callable[..., None]
) -> None:
    """Whether the pipeline a gold set names exists, and is the one it stands in."""
    if table.pipeline is None:
        return
    if inside is not None and table.pipeline != inside:
        hint = f"it stands inside {inside} and belongs to it: leave pipeline out"
        report(path, "contradicts its place", value=table.pipeline, hint=hint)
    elif table.pipeline not in known.pipelines:
        hint = f'{nearest(table.pipeline, known.pipelines)}; or declare it: [pipelines."{table.pipeline}"]'
        report(path, "names no pipeline", value=table.pipeline, hint=hint)


def probe_specs(
    views: Views, gold: Mapping[str, GoldSpec], known: Declared, problems: Problems
) -> tuple[ProbeSpec, ...]:
    """What is sent, and through which pipeline: the one it stands in, else the one of its gold set, else the default.

    Args:
        views: All tables.
        gold: The gold sets by name.
        known: The declared names.
        problems: Where problems are reported.
    """
    found: dict[str, ProbeSpec] = {}
    for pipeline, view in views.items():
        for name, table in view.tables.probe.items():
            report = partial(problems.report, scope=view.scope)
            if name in found:
                report(("probe", name), "is defined twice", hint="probes are told apart by their names: choose another")
            chosen = _gold_of(name, table, gold, known, report)
            if chosen is not None:
                target = pipeline or chosen.pipeline or known.default
                _check_target(name, target, chosen, known, report)
                found[name] = ProbeSpec(name, target, chosen.name, **{k: v for k, v in table if k != "gold"})
    return tuple(found.values())


def _check_target(name: str, target: str, chosen: GoldSpec, known: Declared, report: Callable[..., None]) -> None:
    if target not in known.pipelines:
        hint = f"write it inside one, [pipelines.NAME.probe.{name}], or give its gold set a pipeline"
        report(("probe", name), "does not say which pipeline it probes", hint=hint)
    elif chosen.pipeline not in (None, target):
        wrong = f"names a gold set that does not judge {target}"
        report(("probe", name, "gold"), wrong, value=chosen.name, hint=f"it judges {chosen.pipeline}")


def check_judges(views: Views, problems: Problems) -> None:
    """Whether every judge that is a model says what it is asked."""
    for view in views.values():
        for name, table in view.tables.judges.items():
            if table.url is not None and table.asks(name) is None:
                kinds = " or ".join(f'"{kind}"' for kind in get_args(JudgeKind))
                hint = f"kind = {kinds}; a judge called by one of these names need not say it"
                problems.report(("judges", name), "does not say what the model is asked", scope=view.scope, hint=hint)


def _gold_of(
    name: str, table: Probe, gold: Mapping[str, GoldSpec], known: Declared, report: Callable[..., None]
) -> GoldSpec | None:
    """The gold set a probe asks; None where it cannot be told, which is reported."""
    path = ("probe", name, "gold")
    if table.gold is None and len(known.gold) != 1:
        report(path, "is missing", hint=f"a probe asks the questions of a gold set: {nearest('', known.gold)}")
        return None
    wanted = table.gold or next(iter(known.gold))
    if wanted not in known.gold:
        report(path, "names no gold set", value=wanted, hint=nearest(wanted, known.gold))
        return None
    chosen = gold.get(wanted)
    if chosen is not None and constants.PROBE not in chosen.use:
        report(path, "is not used for probes", value=wanted, hint=f'add "probe" to use of [gold.{wanted}]')
    return chosen
