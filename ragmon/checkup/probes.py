"""What a configuration's probes will do, in words; nothing is sent."""

from __future__ import annotations

from ragmon.alarms.plan import duration
from ragmon.checkup.check import Check
from ragmon.config.settings import ProbeSpec, Settings
from ragmon.core.errors import RagmonError
from ragmon.gold import GoldSet
from ragmon.monitor.build import load_gold, probe_key
from ragmon.monitor.probes.plan import questions
from ragmon.monitor.probes.prober import interval

NAME = "probe"


def probes(settings: Settings) -> list[Check]:
    """Each probe: whom it asks, how often, and what stands against that.

    Args:
        settings: The configuration.
    """
    try:
        golds = {gold.name: gold for gold in load_gold(settings.gold)}
    except RagmonError:  # another line says so
        return []
    return [_probe(spec, golds[spec.gold], settings) for spec in settings.probes]


def _probe(spec: ProbeSpec, gold: GoldSet, settings: Settings) -> Check:
    try:
        asked, key = len(questions(gold)), probe_key(settings.of(spec.pipeline).capture)
    except RagmonError as error:
        return Check(NAME, ok=False, told=f"{spec.name}: {error}", hint=error.hint)
    every = interval(asked, spec.every, spec.max_per_day, reserve=spec.on_look)
    told = f"{spec.name} asks {spec.asks} the {asked} questions of {gold.name} in {duration(every * asked / 60)}"
    if every * asked > spec.every * 1.001:
        return Check(NAME, ok=True, told=told, hint=f"max_per_day = {spec.max_per_day} allows no more")
    if key is None and spec.target.startswith("http"):
        hint = "a traced application counts these requests as users': `[capture] hash_key_file` there and here"
        return Check(NAME, ok=True, told=told, hint=hint)
    return Check(NAME, ok=True, told=told)
