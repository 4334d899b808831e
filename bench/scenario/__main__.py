"""`python -m bench.scenario`: what ragmon's alarms and the usual alert rules find in the same streams."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from bench.scenario.incidents import PRESETS
from bench.scenario.ours import edges
from bench.scenario.reference import REFERENCES
from bench.scenario.stream import Stream
from bench.scenario.table import HEAD, Row, line
from bench.scenario.verdicts import Edge, judge

Monitor = Callable[[Stream], list[Edge]]

HOURS: Final[Mapping[str, int]] = MappingProxyType(
    {"quiet": 24, "standard": 12, "subtle": 12, "random": 24, "single": 4}
)
SPARSE: Final = ("standard", "subtle")
"""The presets that are tried again with fewer probes, and with less traffic."""
RPS: Final = 1.0
PROBE_SHARE: Final = 0.05


@dataclass(frozen=True)
class Plan:
    """One part of the table.

    Args:
        presets: Which presets.
        rps: Requests a second.
        probe_share: Share of the requests that ask a gold question.
    """

    presets: Sequence[str]
    rps: float = RPS
    probe_share: float = PROBE_SHARE


MONITORS: Final[Mapping[str, Monitor]] = MappingProxyType({**REFERENCES, "ragmon": edges})
"""The reference monitors and ragmon's alarms, by name."""


def measure(plan: Plan, seeds: int, watching: Mapping[str, Monitor]) -> Iterator[Row]:
    """Show every monitor the same streams; a row comes as soon as its preset is through.

    Args:
        plan: Which streams.
        seeds: How many of each preset, seeds 1, 2, ...
        watching: The monitors by name.
    """
    for preset in plan.presets:
        hours = HOURS[preset]
        rows = {name: Row(preset, name, hours, []) for name in watching}
        for seed in range(1, seeds + 1):
            stream = Stream(preset, seed, hours, plan.rps, plan.probe_share)
            for name, monitor in watching.items():
                rows[name].verdicts.append(judge(stream.incidents, monitor(stream)))
        yield from rows.values()


def plans(chosen: argparse.Namespace) -> list[Plan]:
    """The main part; and where neither load was asked for, the same with fewer probes and with less traffic."""
    main_part = Plan(
        chosen.presets,
        RPS if chosen.rps is None else chosen.rps,
        PROBE_SHARE if chosen.probe_share is None else chosen.probe_share,
    )
    sparse = [preset for preset in SPARSE if preset in chosen.presets]
    if not sparse or chosen.rps is not None or chosen.probe_share is not None:
        return [main_part]
    return [main_part, Plan(sparse, probe_share=0.02), Plan(sparse, rps=0.2)]


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.scenario", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="streams of each preset (default: 3)")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS), help="which (default: all)")
    parser.add_argument("--probe-share", type=float, help=f"share of gold questions (default: {PROBE_SHARE})")
    parser.add_argument("--rps", type=float, help=f"requests a second (default: {RPS:g})")
    chosen = parser.parse_args(given)
    if chosen.seeds < 1:
        parser.error(f"--seeds is less than 1: {chosen.seeds}")
    return chosen


def main(given: Sequence[str] | None = None) -> None:
    """Print the table."""
    chosen = arguments(given)
    for plan in plans(chosen):
        print(f"\nprobe share {plan.probe_share:g}, {plan.rps:g} requests/s", end="; ")
        print("delays: typical / worst stream; looks a day: outside of benign events")
        print(line(HEAD))
        for row in measure(plan, chosen.seeds, MONITORS):
            print(line(row.cells), flush=True)


if __name__ == "__main__":
    main()
