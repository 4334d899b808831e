"""Fingerprints of counts that add up as the counts do.

A count is a number at a place: so many requests with these facts, in this row of this series. Its fingerprint is the
number times a hash of the place, and the fingerprint of many counts is the sum of theirs modulo a prime (a multiset
hash by addition; Clarke, Devadas, van Dijk, Gassend and Suh 2003, section 5). So it depends neither on the order of
counting nor on how counts were divided among processes, and counts whose time is over can be deleted: their
fingerprint stays in a sum. What the counts are need not be known here: every whole number in a row takes part, and
zero is the same as nothing.

It tells states apart that differ by accident. Whoever may choose the counts can make two sums equal, so it is no
signature.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, Final

FORMAT: Final = 2
"""The version of the digest: it changes when the same counts get another one."""
PRIME: Final = 2**255 - 19
"""Sums are kept modulo this."""
_KNOWN: Final = 65_536
"""Places whose hashes are cached: many rows hold the same few facts."""
_MANY: Final = 64
"""Counts of a mapping from which the places of its names are cached: of the many small ones each is its own."""
_PATHS: Final = 64
"""Such mappings that are cached, and how many names of each."""
_NAMES: Final = 4096
_BYTES: Final = 32


@lru_cache(_KNOWN)
def place(path: str) -> int:
    """The hash of a place."""
    return int.from_bytes(hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=_BYTES).digest(), "big")


@lru_cache(_PATHS)
def _known_places(_: str) -> dict[object, int]:
    """The hashes of the numbers in mappings at a path, by name."""
    return {}


def _new_place(known: dict[object, int], path: str, name: object) -> int:
    """The hash of a number in a mapping."""
    if len(known) >= _NAMES:
        known.clear()
    factor = known[name] = place(f"{path}{name!r}:")
    return factor


def moment(step: int) -> int:
    """The factor of a time step, so that the same counts at another time have another fingerprint.

    Args:
        step: Its start in seconds or its number; -1 for what has no time.
    """
    return place(f"@{step}")


def of_counts(counts: Any) -> int:
    """The fingerprint of counts.

    Args:
        counts: A whole number, or a mapping or list of counts, as deep as it may be.

    Raises:
        TypeError: There is something else in it, such as a float, which does not add up to the same bits in any order.

    >>> of_counts({"cells": {"a": 2}, "spilled": 0}) == 2 * of_counts({"cells": {"a": 1}}) % PRIME
    True
    """
    return _sum(counts, "") % PRIME


def _sum(counts: Any, path: str) -> int:
    if isinstance(counts, int):
        return counts * place(path)
    if isinstance(counts, dict):
        return _sum_of_many(counts, path) if len(counts) >= _MANY else _sum_of_few(counts, path)
    if isinstance(counts, list | tuple):
        return sum(_sum(inner, f"{path}{number}:") for number, inner in enumerate(counts))
    raise TypeError(f"a count is a whole number, and {counts!r} is none")


def _sum_of_few(counts: dict[Any, Any], path: str) -> int:
    total = 0
    for name, inner in counts.items():
        below = f"{path}{name!r}:"
        # Most are numbers, and a call for each would take half of the time.
        total += inner * place(below) if type(inner) is int else _sum(inner, below)
    return total


def _sum_of_many(counts: dict[Any, Any], path: str) -> int:
    total, known = 0, _known_places(path)
    for name, inner in counts.items():
        if type(inner) is int:  # a text for each, as above, would take most of the time
            factor = known.get(name)
            if factor is None:
                factor = _new_place(known, path, name)
            total += inner * factor
        else:
            total += _sum(inner, f"{path}{name!r}:")
    return total


Sums = dict[tuple[str, ...], int]
"""Fingerprints by name."""


def add(sums: Sums, name: Iterable[object], fingerprint: int) -> None:
    """Add the fingerprint of further counts under a name."""
    key = tuple(map(str, name))
    sums[key] = (sums.get(key, 0) + fingerprint) % PRIME


def digest_of(sums: Mapping[tuple[str, ...], int]) -> str:
    """The digest of fingerprints by name: 64 hexadecimal digits. A name without counts is the same as no name."""
    entries = sorted((*name, f"{fingerprint:x}") for name, fingerprint in sums.items() if fingerprint)
    return hashlib.sha256(json.dumps([FORMAT, entries], separators=(",", ":")).encode()).hexdigest()


def as_text(fingerprint: int) -> str:
    """A fingerprint as it is saved: JSON numbers have 53 bits."""
    return f"{fingerprint:x}" if fingerprint else ""


def from_text(text: str) -> int:
    """Undo `as_text`."""
    return int(text or "0", 16)
