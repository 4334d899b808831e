"""What ragmon answered before the code was rebuilt, and what may differ.

The answers stand in `tests/golden/before/`, one gzipped JSON file a subject, made by the command line and the ports
alone. Every leaf of such a file that today's version says otherwise must match an entry of `accepted.toml` there, which
has the reason.
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
NOW = Path(sys.executable)
"""The interpreter: `-m ragmon` is the command line, a script uses the Python interface."""
ABSENT = "(absent)"


class Difference(NamedTuple):
    """A leaf that today's version says otherwise.

    Attributes:
        where: The subject and the leaf, as in `reports/squad2:series[0].metrics.recall@5.value`.
        before: What the golden file says; `ABSENT` where it says nothing.
        now: What today's version says.
    """

    where: str
    before: Any
    now: Any

    def __str__(self) -> str:
        return f"{self.where}\n  before: {json.dumps(self.before)}\n  now:    {json.dumps(self.now)}"


def environment(**extra: str) -> dict[str, str]:
    """The environment for programs: nothing configures ragmon, hashes are the same, and time is UTC."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAGMON_", "OTEL_", "PYTHON"))}
    same = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "TZ": "UTC", "COLUMNS": "100", "PYTHONSAFEPATH": "1"}
    return kept | same | extra


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
        before: What the golden file says.
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
    """The golden answers to a subject."""
    return json.loads(gzip.decompress((GOLDEN / f"{subject}.json.gz").read_bytes()))


def write_golden(subject: str, content: Any) -> None:
    """Write golden answers; the same content gives the same bytes."""
    path = GOLDEN / f"{subject}.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, sort_keys=True, indent=0)
    path.write_bytes(gzip.compress(text.encode(), compresslevel=9, mtime=0))
