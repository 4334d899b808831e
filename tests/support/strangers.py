"""The judge of tests/strangers: what ragmon says of a log and of a day of it, and whether that is true.

`judge` runs the installed command twice over a log as its owner would, once for the numbers and once for the words on a
terminal. Then it makes a day of it: the same requests over 24 hours, as a live pipeline would have recorded them, given
to the alarms (`ragmon replay --alerts-out`) and to a monitor that is looked at every hour.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ragmon.cli.commands import replay
from ragmon.config.load import load
from ragmon.core.record import Record, encode
from ragmon.ingest.files import ReadSummary, read_files
from ragmon.ingest.tables import TableOptions
from ragmon.monitor.capture_settings import file_options, file_span_options
from ragmon.monitor.embedded import Monitor
from ragmon.testing import FakeClock
from tests.support.command_line import Done, ragmon

MORNING = 1_763_596_800.0
"""When the simulated day begins, seconds since the epoch: a midnight in UTC."""
DAY = 86_400.0
HOUR = 3_600.0
REQUESTS = 1_500
"""Requests of a simulated day, at least: a whole number of rounds of the log."""


@dataclass(frozen=True)
class Measured:
    """A metric of a report: its value, the number of requests it is of, and why others are not among them."""

    value: float | None
    n: int
    unassessed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Judged:
    """What ragmon says of a log.

    Names of gates and metrics are bare where the log has one pipeline, and `PIPELINE/NAME` where it has several.

    Attributes:
        code: The exit code of `ragmon replay`.
        verdict: The overall verdict; None where the log was refused, or only a day was judged.
        gates: The verdict of each gate.
        reasons: Why, by gate.
        metrics: The metrics, each in the series that assessed most requests.
        read, rejected: Records that were read, and rejected lines by reason.
        words: What the owner reads on the terminal: the gates, notes, errors.
        gaps: Findings and remedies of the capture report.
        pages: The gates and alarms that page within the day.
        looks: Those that ask for a look.
        failing_hours: The gates that fail in the day's windows, with the number of hours at whose end they do.
        day: Requests of the simulated day; 0 where there was none.
    """

    code: int
    verdict: str | None
    gates: Mapping[str, str]
    reasons: Mapping[str, str]
    metrics: Mapping[str, Measured]
    read: int
    rejected: Mapping[str, int]
    words: str
    gaps: tuple[str, ...] = ()
    pages: frozenset[str] = frozenset()
    looks: frozenset[str] = frozenset()
    failing_hours: Mapping[str, int] = field(default_factory=dict)
    day: int = 0


@dataclass(frozen=True)
class Truth:
    """What is true of a log. No gate may fail and none may page but those named here.

    Attributes:
        metrics: Values that can be known: exactly, as (lowest, highest), or None where ragmon must not have one.
        n: Of how many requests, by metric.
        passes, fails, undecided: Gates with that verdict; undecided is `insufficient`, which includes "not applicable".
        pages: Gates that page within a day, no more and no fewer.
        words: What the owner must read on the terminal, such as the name of a remedy.
        gaps: What the capture report must name.
        refused: The log is refused, with all of `words`.
        read: Records that there are.
    """

    metrics: Mapping[str, float | tuple[float, float] | None] = field(default_factory=dict)
    n: Mapping[str, int] = field(default_factory=dict)
    passes: Collection[str] = ()
    fails: Collection[str] = ()
    undecided: Collection[str] = ()
    pages: Collection[str] = ()
    words: Collection[str] = ()
    gaps: Collection[str] = ()
    refused: bool = False
    read: int | None = None


def judge(
    folder: Path,
    log: Path | Sequence[Path],
    *,
    gold: Path | None = None,
    config: str = "",
    flags: Sequence[str] = (),
    day: int = REQUESTS,
) -> Judged:
    """What ragmon says of a log, and of a day of it.

    Args:
        folder: Where the configuration and the day are written.
        log: The log, or its files.
        gold: The gold file; None where the owner has none.
        config: The owner's ragmon.toml.
        flags: More of the command line of `ragmon replay`, such as `--map`.
        day: Requests of the simulated day, at least; 0 for no day.
    """
    logs = [log] if isinstance(log, Path) else list(log)
    toml = folder / "ragmon.toml"
    toml.write_text(config, encoding="utf-8")
    arguments = [*logs, *(["--gold", gold] if gold is not None else []), "--config", toml, *flags]
    done = ragmon("replay", *arguments, "--format", "json", cwd=folder)
    shown = ragmon("replay", *arguments, "--format", "text", cwd=folder)
    words = shown.out + shown.err
    if done.code or not done.out:
        return Judged(done.code, None, {}, {}, {}, 0, {}, words)
    lived = _a_day(folder, logs, gold, config, flags, day) if day else {}
    return Judged(**_reported(done, words), **lived)


def judge_day(
    folder: Path,
    log: Path,
    *,
    gold: Path | None = None,
    config: str = "",
    flags: Sequence[str] = (),
    day: int = REQUESTS,
) -> Judged:
    """What alarms and windows say of a day of a log, and nothing else; the arguments are those of `judge`."""
    return Judged(0, None, {}, {}, {}, 0, {}, "", **_a_day(folder, [log], gold, config, flags, day))


def _reported(done: Done, words: str) -> dict[str, Any]:
    """What the report of a whole log says."""
    report = done.json
    name = _namer({gate["pipeline"] for gate in report["gates"]})
    metrics: dict[str, Measured] = {}
    for series in report["series"]:
        for metric, found in series["metrics"].items():
            key = name(series["pipeline"], metric)
            measured = Measured(found["value"], found["n"], found["unassessed"])
            if key not in metrics or _weight(measured) > _weight(metrics[key]):
                metrics[key] = measured
    return {
        "code": done.code,
        "verdict": report["verdict"],
        "gates": {name(gate["pipeline"], gate["gate"]): gate["verdict"] for gate in report["gates"]},
        "reasons": {name(gate["pipeline"], gate["gate"]): gate["reason"] for gate in report["gates"]},
        "metrics": metrics,
        "read": report["records"]["read"],
        "rejected": report["records"]["rejected"],
        "words": words,
        "gaps": tuple(f"{gap['finding']}: {gap['remedy']}" for each in report["captured"] for gap in each["gaps"]),
    }


def _weight(measured: Measured) -> tuple[int, int]:
    return measured.n, sum(measured.unassessed.values())


def _namer(pipelines: Collection[str]):
    """How gates and metrics are called: without the pipeline where there is only one."""
    return (lambda pipeline, name: f"{pipeline}/{name}") if len(pipelines) > 1 else (lambda _, name: name)


# --- a day ------------------------------------------------------------------------------------------------------------


def _a_day(
    folder: Path, logs: Sequence[Path], gold: Path | None, config: str, flags: Sequence[str], requests: int
) -> dict[str, Any]:
    """What alarms and windows say of a day of a log: fields of `Judged`."""
    toml, path, alerts = folder / "day.toml", folder / "day.jsonl", folder / "alerts.jsonl"
    toml.write_text(config + (f"\n[gold.gold]\npath = {json.dumps(str(gold))}\n" if gold else ""), encoding="utf-8")
    records = list(spread(_records(toml, logs, flags), requests))
    path.write_bytes(b"".join(map(encode, records)))
    done = ragmon("replay", path, "--config", toml, "--format", "text", "--alerts-out", alerts, cwd=folder)
    assert done.code == 0, done
    pipelines = {record.pipeline or "default" for record in records}
    edges = [json.loads(line) for line in alerts.read_text("utf-8").splitlines()]
    firing = {kind: set[str]() for kind in ("page", "look", "ticket")}
    for edge in edges:
        if edge["state"] == "firing":
            alert = edge["alert"]
            firing[edge["severity"]].add(alert.rpartition("/")[2] if len(pipelines) == 1 else alert)
    return {
        "pages": frozenset(firing["page"]),
        "looks": frozenset(firing["look"]),
        "failing_hours": _failing_hours(toml, records, _namer(pipelines)),
        "day": len(records),
    }


def _records(toml: Path, logs: Sequence[Path], flags: Sequence[str]) -> list[Record]:
    """The records of a log, as the command reads it with these flags."""
    given = replay.make_context("replay", [*map(str, logs), *flags]).params
    options = TableOptions(*(given[name] for name in ("mapping", "encoding", "list_separator", "sheet")))
    settings = load(toml, environ={})
    options, spans = file_options(settings, options), file_span_options(settings)
    lines = read_files([str(log) for log in logs], ReadSummary(), options=options, span_options=spans)
    return [line for line in lines if isinstance(line, Record)]


def spread(records: Sequence[Record], requests: int):
    """The records again and again, evenly over a day, every round in an order of its own.

    Args:
        records: The log.
        requests: How many there are in the end, at least; every record is there as often as any other.
    """
    rng, rounds = random.Random(17), -(-requests // len(records))
    step = DAY / (rounds * len(records))
    place = 0
    for number in range(rounds):
        for record in rng.sample(list(records), len(records)):
            yield msgspec.structs.replace(
                record,
                ts=round(MORNING + step * place, 3),
                trace_id=f"{place + 1:032x}",
                source="live" if record.source in (None, "replay") else record.source,
                session=None if record.session is None else f"{record.session}-{number}",
            )
            place += 1


def _failing_hours(toml: Path, records: Sequence[Record], name) -> dict[str, int]:
    """How many of the day's hours end with a gate failing, for the gates that do: what a live monitor shows."""
    clock, failing = FakeClock(MORNING), Counter[str]()
    monitor = Monitor(load(toml, environ={}), clock=clock)

    def look():
        outcomes = monitor.snapshot().outcomes
        failing.update(name(one.gate.pipeline, one.gate.name) for one in outcomes if one.verdict == "fail")

    hour = MORNING + HOUR
    for record in records:
        if record.ts >= hour:
            look()
            hour += HOUR
        clock.now = record.ts
        monitor.submit(record)
    look()
    return dict(failing)


# --- the comparison ---------------------------------------------------------------------------------------------------


def assert_true(judged: Judged, truth: Truth) -> None:
    """Everything that is said is true, and what is true is said; all that is wrong is listed at once."""
    if truth.refused or judged.code:
        wrong = list(_refusal(judged, truth))
    else:
        wrong = [*(_differences(judged, truth) if judged.verdict is not None else ()), *_of_day(judged, truth)]
    if wrong:
        pytest.fail("\n- ".join(["what ragmon says is not what is true:", *wrong, f"on the terminal:\n{judged.words}"]))


def _refusal(judged: Judged, truth: Truth):
    if not truth.refused or judged.code != 3:
        yield f"exit code {judged.code}; {'a refusal, 3,' if truth.refused else '0'} would be right"
    yield from _unsaid("on the terminal", truth.words, judged.words)


def _differences(judged: Judged, truth: Truth):
    if truth.read is not None and judged.read != truth.read:
        yield f"{judged.read} records read of {truth.read}; rejected: {judged.rejected}"
    expected = {name: verdict for verdict, names in _verdicts(truth) for name in names}
    for gate in [*expected, *(gate for gate in judged.gates if gate not in expected)]:
        verdict = judged.gates.get(gate, "missing")
        if verdict != expected.get(gate, verdict) or (verdict == "fail" and gate not in expected):
            right = expected.get(gate, "no fail")
            yield f"gate {gate}: {verdict}, {right} would be right ({judged.reasons.get(gate)})"
    for metric, value in truth.metrics.items():
        yield from _value(metric, judged.metrics.get(metric), value)
    for metric, n in truth.n.items():
        if (found := judged.metrics.get(metric)) is None or found.n != n:
            yield f"{metric} is of {n} requests, not {found}"
    yield from _unsaid("on the terminal", truth.words, judged.words)
    yield from _unsaid("in the capture report", truth.gaps, "\n".join(judged.gaps) or "nothing")


def _verdicts(truth: Truth):
    return ("pass", truth.passes), ("fail", truth.fails), ("insufficient", truth.undecided)


def _value(metric: str, found: Measured | None, value: float | tuple[float, float] | None):
    if value is None:
        if found is not None and found.value is not None:
            yield f"{metric} cannot be known, and is said to be {found}"
    elif found is None or found.value is None:
        yield f"{metric} is {value}, and is not known: {found}"
    else:
        low, high = value if isinstance(value, tuple) else (value - 1e-6, value + 1e-6)
        if not low <= found.value <= high:
            yield f"{metric} is {value}, not {found}"


def _unsaid(where: str, words: Collection[str], text: str):
    for each in words:
        if each not in text:
            yield f"{each!r} is not said {where}" + ("" if where == "on the terminal" else f": {text}")


def _of_day(judged: Judged, truth: Truth):
    if judged.day:
        if too_many := judged.pages - set(truth.pages):
            yield f"false pages within a day: {sorted(too_many)}"
        if too_few := set(truth.pages) - judged.pages:
            yield f"no page within a day: {sorted(too_few)}; there were {sorted(judged.pages)}"
        for gate, hours in judged.failing_hours.items():
            if gate not in {*truth.fails, *truth.pages}:
                yield f"gate {gate} fails in {hours} hours of the day"
