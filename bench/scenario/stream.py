"""One stream: its incidents, its gold set, its records, and the files `ragmon replay` reads."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.scenario.incidents import HOUR, PRESETS, Incident, schedule
from bench.scenario.pool import SYSTEM, pool
from bench.scenario.traffic import Traffic
from ragmon.core.constants import PROBE
from ragmon.core.errors import RagmonError, UnknownNameError
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import Latency, Record
from ragmon.ingest.gold import GoldSet

START: Final = 1_763_683_200.0
"""Midnight, UTC."""


@dataclass(frozen=True)
class Stream:
    """A production stream in which quality breaks in known ways at known times; the same arguments give the same one.

    Args:
        preset: Which incidents (`bench.scenario.incidents.PRESETS`).
        seed: Seed of everything that is drawn.
        hours: Length.
        rps: Requests a second, as the mean over a day without bursts.
        probe_share: Share of the requests that ask a gold question, in [0, 1].

    Raises:
        RagmonError: An argument is out of range, or the preset does not exist.
    """

    preset: str
    seed: int
    hours: float
    rps: float = 1.0
    probe_share: float = 0.05

    def __post_init__(self) -> None:
        if self.preset not in PRESETS:
            raise UnknownNameError("preset", self.preset, PRESETS)
        for name, value in (("hours", self.hours), ("rps", self.rps)):
            if value <= 0:
                raise RagmonError(f"{name} is not positive: {value!r}", hint="a number above 0")
        if not 0 <= self.probe_share <= 1:
            raise RagmonError(f"probe_share is not a share: {self.probe_share!r}", hint="a number from 0 to 1")

    @property
    def start(self) -> float:
        """The first second, since the epoch."""
        return START

    @property
    def end(self) -> float:
        """Where it ends, seconds since the epoch."""
        return START + self.hours * HOUR

    @property
    def gold(self) -> GoldSet:
        """The gold set the probes ask; every stream has the same one."""
        return pool().gold

    @cached_property
    def incidents(self) -> list[Incident]:
        """What happens, in time order."""
        return list(schedule(self.preset, seed=self.seed, hours=self.hours, start=START))

    def records(self) -> Iterator[Record]:
        """Every request, in time order. They are drawn once and shared by all readers, who must not change them."""
        return iter(self._records)

    @cached_property
    def _records(self) -> tuple[Record, ...]:
        rng = random.Random(f"{self.preset} {self.seed}")
        return tuple(Traffic(self.incidents, self.start, self.end, self.rps, self.probe_share, rng).records())

    def write(self, folder: str | Path) -> None:
        """Write `stream.jsonl.gz`, `gold.jsonl` and, apart from what a monitor may see, `incidents.json`.

        Args:
            folder: Created where it is missing.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        # No time and no name in the header: the same stream has the same bytes.
        with (folder / "stream.jsonl.gz").open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
            packed.writelines(msgspec.json.encode(_line(record)) + b"\n" for record in self.records())
        (folder / "gold.jsonl").write_text("".join(f"{json.dumps(_gold_row(item))}\n" for item in self.gold), "utf-8")
        (folder / "incidents.json").write_text(json.dumps([_event(i) for i in self.incidents], indent=1), "utf-8")


def _line(record: Record) -> dict[str, Any]:
    """A trace as the published evaluation page logs it, with time, latency and a probe mark."""
    latency = record.latency_ms or Latency()
    return {
        "trace_id": record.trace_id,
        "ts": record.ts,
        "qid": record.qid,
        "q": record.q,
        "retrieved_ids": record.retrieved_ids,
        "answer_json": record.answer_json,
        "model": SYSTEM,
        "probe": record.source == PROBE,
        "retrieval_ms": latency.retrieve,
        "generation_ms": latency.generate,
        "latency_ms": latency.total,
        "error": record.error,
    }


def _gold_row(item: GoldItem) -> dict[str, Any]:
    return {
        "qid": item.qid,
        "question": item.question,
        "answerable": item.answerable,
        "gold_claim_substr": list(item.claim_substrings or ()),
        "gold_citations": list(item.citations or ()),
    }


def _event(incident: Incident) -> dict[str, Any]:
    return {
        "id": incident.id,
        "kind": incident.kind,
        "start": incident.start,
        "end": incident.end,
        "severity": incident.severity,
        "ramp": incident.ramp,
        "benign": incident.benign,
        "expect": list(incident.expect),
    }
