"""`python -m bench.scenario.live`: the incidents a live monitor tells of the same streams, and what bursts confirm.

A prober asks gold questions all day. Where bursts are on, an incident asks more of them, as under `ragmon serve`.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from bench.scenario.__main__ import HOURS
from bench.scenario.incidents import HOUR, PRESETS
from bench.scenario.incidents import Incident as Fault
from bench.scenario.pool import pool
from bench.scenario.stream import Stream
from bench.scenario.traffic import Traffic
from ragmon.config.load import load
from ragmon.config.services import ProbeTable
from ragmon.core.network import DAY
from ragmon.core.record import Record
from ragmon.gates.incidents import Incident, IncidentTransition, trait_of
from ragmon.monitor.engine import Engine
from ragmon.server.probes import BURST, BurstTrigger

AFTER: Final = HOUR / 3
"""Seconds after a fault in which an incident still tells of it: its gold answers come late."""
PROBE: Final = ProbeTable(target="rag:answer")
TRAITS: Final = {
    "index_drift": {"retrieved no gold document"},
    "id_shift": {"retrieved no gold document"},
    "refusal_wave": {"refused", "refused what can be answered"},
    "hallucination": {"answered what cannot be answered", "said what is not in the contexts"},
    "citation_break": {"cited nothing that was retrieved", "cited what was not retrieved", "broke the answer format"},
    "citation_scope": {"cited what was not retrieved"},
    "empty_retrieval": {"retrieved nothing"},
    "refusal_paraphrase": {"refused in its own words", "broke the answer format"},
    "latency": {"took longer"},
    "errors": {"ended in an error"},
}
"""What a diagnosis says of a fault where it is right."""


@dataclass(frozen=True)
class Told:
    """What a monitor told of a stream."""

    incidents: list[Incident]
    edges: list[IncidentTransition]
    pages: int
    bursts: int


def watch(stream: Stream, *, bursts: bool) -> Told:
    """Show a stream to the engine of a live monitor, as time passes."""
    with TemporaryDirectory() as folder:
        stream.write(folder)
        configuration = Path(folder) / "ragmon.toml"
        configuration.write_text('[gold.gold]\npath = "gold.jsonl"\nuse = ["probe"]\n', encoding="utf-8")
        engine = Engine(load(configuration, environ={}), max_transitions=None)
    edges: list[IncidentTransition] = []
    follow = engine.incidents.see
    engine.incidents.see = lambda transitions: _kept(edges, follow(transitions))  # type: ignore[method-assign]
    asked = Bursts(stream) if bursts else None
    for record in stream.records():
        now = record.ts or 0.0
        for extra in () if asked is None else asked.until(now, engine.incidents.incidents):
            engine.observe(extra, extra.ts or now)
        engine.observe(record, now)
    engine.advance(stream.end)
    pages = sum((edge.severity, edge.state) == ("page", "firing") for edge in engine.transitions)
    return Told(engine.incidents.incidents, edges, pages, 0 if asked is None else sum(asked.days.values()))


def _kept(edges: list[IncidentTransition], told: Iterable[IncidentTransition]) -> Iterator[IncidentTransition]:
    for edge in told:
        edges.append(edge)
        yield edge


@dataclass
class Bursts:
    """The prober's bursts: drawn from the gold set and spread over a minute, so many a day."""

    stream: Stream
    days: Counter[float] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        stream, self._rng = self.stream, random.Random(f"bursts {self.stream.seed}")
        self._traffic = Traffic(stream.incidents, stream.start, stream.end, stream.rps, 1.0, self._rng)
        self._trigger, self._due = BurstTrigger(), deque[float]()
        self._drawn: deque[int] = deque()

    def until(self, now: float, incidents: Iterable[Incident]) -> Iterator[Record]:
        """The answers to the questions that are due until a time, in the order of time."""
        probes = pool().probes
        if self._trigger.see(incidents, now) and not self._due and self.days[now // DAY] < PROBE.bursts_per_day:
            self.days[now // DAY] += 1
            self._drawn.extend(self._rng.sample(range(len(probes)), PROBE.burst))
            self._due.extend(now + BURST * place / PROBE.burst for place in range(PROBE.burst))
        while self._due and self._due[0] <= now:
            ts = self._due.popleft()
            active = [fault for fault in self.stream.incidents if fault.start <= ts < fault.end]
            yield self._traffic.record(ts, probes[self._drawn.popleft()], active, probe=True)


@dataclass
class Row:
    """What was told of all streams of a preset; delays in minutes."""

    faults: int = 0
    found: int = 0
    incidents: int = 0
    pages: int = 0
    bursts: int = 0
    suspected: list[float] = field(default_factory=list)
    confirmed: list[float] = field(default_factory=list)
    after_suspicion: Counter[str] = field(default_factory=Counter)
    causes: int = 0
    benign: int = 0
    benign_confirmed: int = 0
    outside: int = 0
    outside_confirmed: int = 0
    missed: Counter[str] = field(default_factory=Counter)
    misnamed: Counter[str] = field(default_factory=Counter)

    def add(self, stream: Stream, told: Told) -> None:
        """Add a stream."""
        self.pages += told.pages
        self.bursts += told.bursts
        of_fault: dict[int, list[Incident]] = {}
        first = {edge.incident: edge.ts for edge in reversed(told.edges)}
        for incident in told.incidents:
            at = first[incident.name]
            faults = [fault for fault in stream.incidents if fault.start <= at <= fault.end + AFTER]
            is_confirmed = incident.severity == "confirmed"
            if not faults:
                self.outside, self.outside_confirmed = self.outside + 1, self.outside_confirmed + is_confirmed
            elif faults[-1].benign:
                self.benign, self.benign_confirmed = self.benign + 1, self.benign_confirmed + is_confirmed
            else:
                of_fault.setdefault(faults[-1].id, []).append(incident)
        for fault in stream.incidents:
            if not fault.benign:
                self._add_fault(fault, of_fault.get(fault.id, []), told.edges)

    def _add_fault(self, fault: Fault, incidents: list[Incident], edges: list[IncidentTransition]) -> None:
        self.faults += 1
        if not incidents:
            self.missed[f"{fault.kind} of {fault.severity:g} for {(fault.end - fault.start) / 60:.0f} min"] += 1
            return
        self.found += 1
        self.incidents += len(incidents)
        trait = trait_of(incidents[0])
        self.causes += trait in TRAITS[fault.kind]
        if trait not in TRAITS[fault.kind]:
            self.misnamed[f"{fault.kind} of {fault.severity:g}: {trait}"] += 1
        names = {incident.name for incident in incidents}
        own = [edge for edge in edges if edge.incident in names and edge.state == "firing"]
        self.suspected.append((own[0].ts - fault.start) / 60)
        confirmed = next((edge.ts for edge in own if edge.severity == "confirmed"), None)
        if confirmed is not None:
            self.confirmed.append((confirmed - fault.start) / 60)
        within = confirmed is not None and confirmed - own[0].ts <= 180
        self.after_suspicion[f"{fault.kind} {'within' if within else 'later'}"] += 1

    def lines(self, name: str) -> Iterator[str]:
        """The row as text."""
        yield (
            f"{name}: {self.found} of {self.faults} faults found, {self.incidents} incidents "
            f"({self.pages} page alarms); "
            f"suspected after {_median(self.suspected)} min, confirmed {len(self.confirmed)} after "
            f"{_median(self.confirmed)} min; cause right in {self.causes}; outside of faults {self.outside} "
            f"({self.outside_confirmed} confirmed), in benign changes {self.benign} ({self.benign_confirmed} confirmed)"
            + (f"; {self.bursts} bursts" if self.bursts else "")
        )
        kinds = sorted({entry.rpartition(" ")[0] for entry in self.after_suspicion})
        within = [f"{kind} {self.after_suspicion[f'{kind} within']} of {self._all(kind)}" for kind in kinds]
        if within:
            yield f"    confirmed within 3 min of the suspicion: {', '.join(within)}"
        for what, counts in (("missed", self.missed), ("another cause named", self.misnamed)):
            if counts:
                yield f"    {what}: {', '.join(f'{n} x {name}' for name, n in counts.most_common())}"

    def _all(self, kind: str) -> int:
        return self.after_suspicion[f"{kind} within"] + self.after_suspicion[f"{kind} later"]


def _median(values: list[float]) -> str:
    return f"{median(values):.0f} (at most {max(values):.0f})" if values else "-"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.scenario.live", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="streams of each preset (default: 3)")
    parser.add_argument("--presets", nargs="+", choices=PRESETS, default=list(PRESETS), help="which (default: all)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: 1)")
    chosen = parser.parse_args()
    for preset in chosen.presets:
        rows = {False: Row(), True: Row()}
        for seed in range(chosen.first, chosen.first + chosen.seeds):
            stream = Stream(preset, seed, HOURS[preset])
            for bursts, row in rows.items():
                row.add(stream, watch(stream, bursts=bursts))
        for bursts, row in rows.items():
            for line in row.lines(f"{preset}{', with bursts' if bursts else ''}"):
                print(line, flush=True)


if __name__ == "__main__":
    main()
