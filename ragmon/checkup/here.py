"""What can be tried in this process: gold, baselines, a call that is captured and scored, and what alarms can find."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import ragmon
from ragmon.alarms.plan import Reach, reach
from ragmon.checkup.check import Check
from ragmon.config.services import Export
from ragmon.config.settings import PipelineSettings, Settings
from ragmon.config.types import Address
from ragmon.core.errors import RagmonError
from ragmon.monitor import install
from ragmon.monitor.build import arm, load_gold
from ragmon.monitor.exporting import nearest_of
from ragmon.remote import get
from ragmon.scoring.score_table import ScoreTable

RATES: Final = (1.0, 10.0, 100.0)
"""Observations a minute for which it is said what alarms find, where nobody knows the rate."""


def here(settings: Settings) -> Iterator[Check]:
    """Try what needs no server.

    Args:
        settings: The configuration, without problems.
    """
    yield _gold(settings)
    yield from _embeds(settings)
    yield _baselines(settings)
    yield _capture(settings)


def _gold(settings: Settings) -> Check:
    try:
        sets = load_gold(settings.gold)
    except RagmonError as error:
        return Check("gold", ok=False, told=str(error), hint=error.hint)
    found = ", ".join(f"{gold.name} {gold.short_version} with {len(gold)} items" for gold in sets)
    return Check("gold", ok=True, told=found or "none: only label-free metrics are counted")


def _embeds(settings: Settings) -> Iterator[Check]:
    """Whether questions can be matched by meaning, where a gold set asks for it."""
    for spec in settings.gold:
        if spec.embed is None:
            continue
        try:
            found = nearest_of(settings, load_gold([spec]))
        except RagmonError as error:
            yield Check(f"embed {spec.name}", ok=False, told=str(error), hint=error.hint)
            continue
        known = found[0].calibration if found else None
        if known is None or known.threshold is None:
            told = "off: " + ("the embedder failed, as the log says" if known is None else known.reason)
            yield Check(f"embed {spec.name}", ok=False, told=told, hint="write more paraphrases, or leave embed out")
            continue
        told = f"similarity {known.threshold:.3f}, which {known.kept:.0%} of {known.pairs} paraphrases reach"
        yield Check(f"embed {spec.name}", ok=True, told=told)


def _baselines(settings: Settings) -> Check:
    try:
        alarms = arm(settings, ScoreTable(settings.build_metrics()))
        for name in settings.pipelines:
            alarms.of(name)
    except RagmonError as error:
        return Check("baseline", ok=False, told=str(error), hint=error.hint)
    files = sorted({str(one.alarms.baseline.file) for one in settings.pipelines.values() if one.alarms.baseline.file})
    return Check("baseline", ok=True, told=", ".join(files) or "learned from traffic, at least an hour of it")


def _capture(settings: Settings) -> Check:
    """A call of a decorated function, captured and scored in this process, seen on `/metrics`."""
    quiet = replace(
        settings,
        export=Export(),
        common=_kept(settings.common),
        pipelines={name: _kept(one) for name, one in settings.pipelines.items()},
        serve=settings.serve.model_copy(update={"admin": Address("127.0.0.1", 0)}),
    )
    try:
        installed = install.install(quiet)
    except RagmonError as error:
        return Check("capture", ok=False, told=f"not tried: {error}", hint=error.hint)
    try:
        ragmon.trace(name=settings.pipeline)(_answer)("Is anybody there?")
        installed.flush()
        monitor = installed.monitor
        address = None if monitor is None else monitor.address
        if address is None:
            return Check("capture", ok=False, told="nothing is captured", hint="RAGMON_DISABLED is set")
        lines = get(f"http://{address}", "/metrics").body.decode().splitlines()
    finally:
        installed.shutdown()
    scored = next((line for line in lines if line.startswith('ragmon_records_scored_total{stage="score"}')), "")
    if scored.rpartition(" ")[2] != "1.0":
        return Check("capture", ok=False, told="a call was made and not scored", hint="report this: it is a bug")
    told = f"a call was captured and scored here, and is one of {len(lines)} lines of /metrics"
    return Check("capture", ok=True, told=told)


def _answer(question: str) -> dict[str, object]:
    return {"answer": question, "citations": ["d1"], "retrieved": ["d1"]}


def _kept(one: PipelineSettings) -> PipelineSettings:
    return replace(one, sampling=one.sampling.model_copy(update={"rate": 1.0}))


def reaches(settings: Settings, per_minute: float) -> list[Reach]:
    """What the alarms of every pipeline find at a rate of observations."""
    metrics = settings.build_metrics()
    return [
        found
        for one in settings.pipelines.values()
        for found in reach(
            one.gates,
            metrics,
            dict.fromkeys((gate.name for gate in one.gates), per_minute),
            false_pages_per_30d=one.alarms.false_pages_per_30d,
            looks_per_day=one.alarms.looks_per_day,
            pipelines=len(settings.pipelines),
        )
    ]
