"""The outcome of a line that is no record.

Single values of other programs' JSON as the contract's types; what fits no type is rejected, never guessed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.errors import shorten
from ragmon.core.record import LATEST


class Rejected(Exception):  # noqa: N818 - an outcome that is counted, not a failure of the program
    """What is no record, and why.

    Args:
        reason: One of `ragmon.core.constants`.
        detail: What was found.
        lost: How many spans are lost by it, as far as they can be counted; 1 for anything else.
    """

    def __init__(self, reason: str, detail: str, lost: int = 1) -> None:
        super().__init__(detail)
        self.reason = reason
        self.lost = lost


def wrong_type(name: str, expected: str, found: object) -> Rejected:
    """A field holds what no shape allows.

    >>> str(wrong_type("qid", "a string or an integer", True))
    'qid is a string or an integer, not True'
    """
    return Rejected(constants.INVALID_SCHEMA, f"{name} is {expected}, not {shorten(found)}")


OUT_OF_RANGE: Final = "out of range"
"""How msgspec calls a number no float can hold."""

_ONLY_TEXT: Final = frozenset({str})
_YES: Final = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


def as_text(found: Any, name: str) -> str | None:
    """Text; a number is written out, because other programs do not quote what looks like one."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise wrong_type(name, "text", found)
    return str(found)


def as_id(found: Any, name: str) -> str | None:
    """An id: a string, or an integer as one."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise wrong_type(name, "a string or an integer", found)


def as_ids(found: Any, name: str) -> list[str] | None:
    """Ids in order; an entry is an id, or an object that has one."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise wrong_type(name, "a list of ids", found)
    ids: list[Any] = found
    kinds = set(map(type, ids))
    if dict in kinds:
        ids = [entry.get("id") if isinstance(entry, dict) else entry for entry in ids]
        kinds = set(map(type, ids))
    if kinds <= _ONLY_TEXT:
        return ids
    if None in ids:
        raise Rejected(constants.INVALID_SCHEMA, f"an entry of {name} has no id: {shorten(found)}")
    return [str(as_id(entry, f"an entry of {name}")) for entry in ids]


def as_number(found: Any, name: str) -> float | None:
    """A finite number."""
    if found is None or (isinstance(found, float) and math.isfinite(found)):
        return found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise wrong_type(name, "a number", found)
    try:
        number = float(found)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Rejected(constants.NON_FINITE, f"{name} is not finite or has too many digits")
    return number


def as_time(found: Any, name: str) -> float | None:
    """An event time in seconds since the epoch; ISO 8601 without an offset is read as UTC on every machine."""
    seconds = found
    if isinstance(found, str):
        try:
            moment = datetime.fromisoformat(found)
        except ValueError:
            raise wrong_type(name, "seconds since 1970 or ISO 8601", found) from None
        seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    number = as_number(seconds, name)
    if number is not None and not 0 <= number < LATEST:
        raise wrong_type(name, "seconds (not milliseconds) since 1970, before the year 10000", found)
    return number


def as_flag(found: Any, name: str) -> bool | None:
    """A JSON boolean; the string "false" is no falsehood."""
    if found is None or isinstance(found, bool):
        return found
    raise wrong_type(name, "true or false", found)


def as_object(found: Any) -> dict[str, Any]:
    """The members of an object; anything else has none."""
    return found if isinstance(found, dict) else {}


def as_tags(found: Any) -> dict[str, str]:
    """Tags as text, because other programs tag with numbers and booleans too; a null tag is left out."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise wrong_type("tags", "an object", found)
    tags = {}
    for name, tag in found.items():
        text = str(tag).lower() if isinstance(tag, bool) else as_text(tag, f"the tag {name!r}")
        if text is not None:
            tags[name] = text
    return tags


def as_verdicts(found: Any) -> list[bool] | None:
    """Relevance of each document: booleans, yes and no, or objects with a `verdict`."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise wrong_type("verdicts", "a list", found)
    return list(_relevance(found))


def _relevance(entries: Iterable[Any]) -> Iterable[bool]:
    for entry in entries:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        known = _YES.get(str(verdict).strip().lower())
        if known is None:
            raise wrong_type("a verdict", "yes or no", verdict)
        yield known


def as_type(found: Any, kind: Any, name: str) -> Any:
    """A part of the contract, by the contract's own rules."""
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        reason = constants.NON_FINITE if OUT_OF_RANGE in str(error) else constants.INVALID_SCHEMA
        raise Rejected(reason, f"{name}: {error}") from None
