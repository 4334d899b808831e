"""The version that is the yardstick, beside today's: where it lies, what it said, and what may differ.

`make before` installs it into `.before/`. What it said stands in `tests/golden/before/`, one gzipped JSON file a
subject, made by its command line and its ports alone. Every leaf of such a file that today's version says otherwise
must match an entry of `accepted.toml` there, which has the reason.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "before"
BEFORE = ROOT / ".before" / "bin" / "python"
NOW = Path(sys.executable)
"""The interpreters of both versions: `-m ragmon` is the command line, a script uses the Python interface."""
ABSENT = "(absent)"


class Difference(NamedTuple):
    """A leaf that both versions say differently.

    Attributes:
        where: The subject and the leaf, as in `reports/squad2:series[0].metrics.recall@5.value`.
        before: What the yardstick says; `ABSENT` where it says nothing.
        now: What today's version says.
    """

    where: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.where}\n  before: {json.dumps(self.before)}\n  now:    {json.dumps(self.now)}"


def environment(interpreter: Path, **extra: str) -> dict[str, str]:
    """The environment for a version: nothing configures ragmon, hashes are the same, and time is UTC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGMON_", "OTEL_", "PYTHON"))}
    path = {} if interpreter == BEFORE else {"PYTHONPATH": str(ROOT)}
    same = {"PYTHONHASHSEED": "0", "TZ": "UTC", "COLUMNS": "100", "RAGMON_NATIVE": "0"}
    # Without it, `-m ragmon` in the root of this repository would be today's version for both.
    return kept | path | same | {"PYTHONSAFEPATH": "1"} | extra


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of a JSON document that holds no other, with its path; an empty container is a leaf.

    What a command printed is a leaf a line, with the number of such lines: one more line moves no other.

    >>> dict(leaves({"a": [1, {"b": None}], "c": {}}))
    {'a[0]': 1, 'a[1].b': None, 'c': {}}
    """
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from leaves(member, f"{path}.{name}" if path else name)
    elif path.endswith((".out", ".err")) and isinstance(value, list) and all(isinstance(line, str) for line in value):
        yield from ((f"{path}: {line}", n) for line, n in Counter(value).items())
    elif isinstance(value, list) and value:
        for index, member in enumerate(value):
            yield from leaves(member, f"{path}[{index}]")
    else:
        yield path, value


def differing(subject: str, before: Any, now: Any) -> list[Difference]:
    """The leaves that differ.

    Args:
        subject: What is compared; the first part of `Difference.where`.
        before: What the yardstick says, as JSON.
        now: What today's version says.
    """
    old, new = dict(leaves(before)), dict(leaves(now))
    return [
        Difference(f"{subject}:{path}", old.get(path, ABSENT), new.get(path, ABSENT))
        for path in old | new
        if json.dumps(old.get(path, ABSENT)) != json.dumps(new.get(path, ABSENT))
    ]


def differences(subject: str, before: Any, now: Any) -> list[Difference]:
    """The same without those that `accepted.toml` names."""
    return [difference for difference in differing(subject, before, now) if not is_accepted(difference)]


def is_accepted(difference: Difference) -> bool:
    """Whether an entry of `accepted.toml` names this leaf, and, where the entry has a value, this value."""
    return any(
        fnmatchcase(difference.where, entry["where"].replace("[", "[[]"))
        and entry.get("now", difference.now) == difference.now
        for entry in accepted()
    )


@cache
def accepted() -> list[dict[str, Any]]:
    """The entries of `accepted.toml`: `where` (a pattern with `*` and `?`), `reason`, and perhaps the value `now`."""
    entries: list[dict[str, Any]] = tomllib.loads((GOLDEN / "accepted.toml").read_text("utf-8"))["accepted"]
    assert all(entry["reason"].strip() for entry in entries)
    return entries


def read_golden(subject: str) -> Any:
    """What the yardstick said of a subject."""
    return json.loads(gzip.decompress((GOLDEN / f"{subject}.json.gz").read_bytes()))


def write_golden(subject: str, content: Any) -> None:
    """Write what the yardstick says; the same content gives the same bytes."""
    path = GOLDEN / f"{subject}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, sort_keys=True, indent=0)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
