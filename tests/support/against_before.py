"""Feeds the yardstick and today's version the same random input: `python -m tests.support.against_before SECONDS`.

The yardstick lies in `.before/` (`make before`). A case is made from its seed alone, and `before_worker.py` asks both
versions the same. Each leaf that they say differently is printed, once for all places of its kind, with the seed, and
with the case thinned out as far as that is cheap. What `tests/golden/before/accepted.toml` names is counted only.

    python -m tests.support.against_before 120
    python -m tests.support.against_before 60 --family worlds --seed 123 --cases 1
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.before import BEFORE, NOW, ROOT, Difference, differing, environment, is_accepted, leaves
from tests.support.before_cases import FAMILIES, Case

WORKER = Path(__file__).with_name("before_worker.py")
THINNING = 10.0
"""Seconds for thinning out, of all kinds of differences together."""
TODAY = ((r"(?m)^patterns = ", "replace = true\npatterns = "),)
"""What a ragmon.toml says in other words today, to mean the same: patterns in a table `[refusal]` add, or replace."""
SHARES = {"worlds": 2, "verdicts": 2, "streams": 2, "live": 2}
"""Families that get more of the time than others."""
EXITS: Counter[str] = Counter()
"""How often each step ended with which exit code: a family whose steps fail tells nothing."""


class Version:
    """A process that runs one version.

    Args:
        interpreter: Its interpreter.
        extra: More of the environment.
    """

    def __init__(self, interpreter: Path, **extra: str) -> None:
        self._is_today = interpreter != BEFORE
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([interpreter, WORKER], env=environment(interpreter, **extra), **pipes)

    def ask(self, task: dict[str, Any]) -> None:
        """Hand in a task; today's version gets a ragmon.toml in today's words."""
        if self._is_today and (text := task["files"].get("ragmon.toml")):
            for pattern, words in TODAY:
                text = re.sub(pattern, words, text)
            task = task | {"files": task["files"] | {"ragmon.toml": text}}
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """What it says of the task; waits for it."""
        line = self._process.stdout.readline()
        assert line, f"{WORKER.name} ended with {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def content(before: str, now: str) -> tuple[Any, Any]:
    """Two texts that differ, as JSON where they are that, else as how often each line is there, else as lines."""
    before, now = (re.sub(r"rows 1 to \d+", "rows 1 to *", text) for text in (before, now))  # as requests shared them
    for read in (json.loads, lambda text: [json.loads(line) for line in text.splitlines()], samples):
        try:
            return read(before), read(now)
        except (ValueError, RecursionError):
            continue
    lines = before.splitlines(), now.splitlines()
    counted = Counter(lines[0]), Counter(lines[1])
    return counted if counted[0] != counted[1] else lines


def samples(text: str) -> dict[str, float]:
    """The samples of an exposition of metrics."""
    rows = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in rows}


def documents(before: Any, now: Any) -> tuple[Any, Any]:
    """What both versions say of a step, with texts that differ as documents."""
    if isinstance(before, dict) and isinstance(now, dict):
        pairs = {name: documents(before.get(name), now.get(name)) for name in before | now}
        return tuple({name: pair[side] for name, pair in pairs.items()} for side in (0, 1))
    if isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        pairs = [documents(*pair) for pair in zip(before, now, strict=True)]
        return [old for old, _ in pairs], [new for _, new in pairs]
    return content(before, now) if isinstance(before, str) and isinstance(now, str) and before != now else (before, now)


def masked(document: Any, volatile: tuple[str, ...]) -> dict[str, Any]:
    """The leaves of a document; of a volatile one the type alone."""
    return {
        path: type(value).__name__.replace("int", "float") if matches(path, volatile) else value
        for path, value in leaves(document)
    }


def matches(path: str, patterns: tuple[str, ...]) -> bool:
    """Whether one of some patterns is that of a leaf."""
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def compare(case: Case, parts: list[Any], versions: tuple[Version, Version]) -> list[Difference]:
    """The leaves of a case that differ, with only some of its parts; also those that are accepted."""
    task = case.task(parts)
    if case.steps_apart:
        task["steps"] = dict([list(task["steps"].items())[case.seed % len(task["steps"])]])
    names = [*task["steps"], *task.get("read", ())]
    for version in versions:
        version.ask(task | {"steps": list(task["steps"].values())})
    answers = [version.answer() for version in versions]
    before, now = (answer["said"] + [answer["read"].get(name) for name in task.get("read", ())] for answer in answers)
    found = []
    for name, old, new in zip(names, before, now, strict=True):
        if isinstance(old, dict):
            EXITS[f"{case.family}/{name.partition('/')[0]} {old['exit']}"] += 1
        if old != new:
            said = (masked(document, case.volatile) for document in documents(old, new))
            found += differing(f"{case.family}/{name}", *said)
    return found


def kind(difference: Difference) -> str:
    """The place of a difference, whatever the numbers in it."""
    return re.sub(r"[0-9a-f]{16,}|\d+", "*", difference.where)


def thinned(case: Case, wanted: str, versions: tuple[Version, Version], deadline: float) -> list[Any]:
    """As few parts of a case as still show a kind of difference."""
    parts = list(case.parts)
    size = len(parts) // 2
    while size:
        at = 0
        while at < len(parts):
            fewer = parts[:at] + parts[at + size :]
            if time.monotonic() > deadline:
                return parts
            if fewer and wanted in map(kind, compare(case, fewer, versions)):
                parts = fewer
            else:
                at += size
        size //= 2
    return parts


class Findings:
    """What was found so far; each kind of difference is printed when it is found first.

    Args:
        versions: Both versions.
        deadline: When thinning ends.
    """

    def __init__(self, versions: tuple[Version, Version], deadline: float) -> None:
        self._versions, self._deadline, self._left = versions, deadline, THINNING
        self.cases: Counter[str] = Counter()
        self.kinds: Counter[str] = Counter()
        self.accepted = 0

    def try_case(self, case: Case) -> None:
        """Ask both versions, and print what is new."""
        self.cases[case.family] += len(case.parts) if case.parts_are_cases else 1
        found = compare(case, case.parts, self._versions)
        others = [difference for difference in found if not is_accepted(difference)]
        self.accepted += len(found) - len(others)
        for difference in others:
            self.kinds[kind(difference)] += 1
            if self.kinds[kind(difference)] == 1:
                self._print(case, difference)

    def _print(self, case: Case, difference: Difference) -> None:
        again = f"--family {case.family} --seed {case.seed} --cases 1"
        say(f"{difference}\n  again:  python -m tests.support.against_before 60 {again}")
        begun = time.monotonic()
        if self._left > 0:
            parts = thinned(case, kind(difference), self._versions, min(self._deadline, begun + self._left))
            self._left -= time.monotonic() - begun
            say(f"  thinned out to {len(parts)} of {len(case.parts)}:")
            for part in parts[:5]:
                say(f"    {part if isinstance(part, str) else json.dumps(part)}"[:500])

    def summary(self, seconds: float) -> str:
        """Cases, differences by kind, and how many were accepted."""
        cases = ", ".join(f"{n} {family}" for family, n in self.cases.items())
        kinds = "".join(f"\n{n:7} {place}" for place, n in self.kinds.most_common())
        found = f"{self.kinds.total()} differing leaves of {len(self.kinds)} kinds{kinds}"
        exits = ", ".join(f"{name}: {n}" for name, n in sorted(EXITS.items()))
        took = f"{self.cases.total()} cases in {seconds:.0f} s: {cases}\nexit codes of the yardstick: {exits}"
        return f"{took}\n{found}\n{self.accepted} accepted ones"


def say(text: str) -> None:
    """Print at once."""
    print(text, flush=True)  # noqa: T201


def turns(families: list[str], seed: int, cases: int | None) -> Iterator[Case]:
    """The cases of all families; the family that has had the least time for its share is next."""
    spent = dict.fromkeys(families, 0.0)
    made = {family: count(seed) if cases is None else iter(range(seed, seed + cases)) for family in families}
    while spent:
        family = min(spent, key=spent.__getitem__)
        begun = time.monotonic()
        number = next(made[family], None)
        if number is None:
            del spent[family]
            continue
        yield FAMILIES[family](number)
        spent[family] += (time.monotonic() - begun) / SHARES.get(family, 1)


def main(arguments: list[str] | None = None) -> int:
    """Compare until the time is up; the exit code is 1 where a difference is not accepted."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.against_before", description=__doc__.split("\n")[0])
    parser.add_argument("seconds", type=float, help="how long")
    parser.add_argument("--family", action="append", choices=FAMILIES, help="only this one; repeatable")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="that of the first case of each family")
    parser.add_argument("--cases", type=int, help="so many of each family; default: as many as there is time for")
    parser.add_argument("--now", type=Path, default=ROOT, help="the folder that has today's ragmon in it")
    asked = parser.parse_args(arguments)
    begun = time.monotonic()
    say(f"seed {asked.seed}")
    versions = Version(BEFORE), Version(NOW, PYTHONPATH=str(asked.now.resolve()))
    findings = Findings(versions, begun + asked.seconds)
    for case in turns(asked.family or list(FAMILIES), asked.seed, asked.cases):
        findings.try_case(case)
        if time.monotonic() > begun + asked.seconds:
            break
    for version in versions:
        version.close()
    say(findings.summary(time.monotonic() - begun))
    return 1 if findings.kinds else 0


if __name__ == "__main__":
    sys.exit(main())
