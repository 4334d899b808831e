"""Values of JSON from other programs, converted to the types of the trace contract.

A value that fits no type is rejected, never guessed.
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


class Rejected(Exception):  # noqa: N818 - an outcome that is counted, not a program error
    """A line, span or data point that cannot become a record, and the reason.

    Args:
        reason: One of `ragmon.core.constants`.
        detail: What is wrong with it.
        lost: The number of spans lost with it, as far as they can be counted; 1 for anything but spans.
    """

    def __init__(self, reason: str, detail: str, lost: int = 1) -> None:
        super().__init__(detail)
        self.reason = reason
        self.lost = lost


def wrong_type(name: str, expected: str, found: object) -> Rejected:
    """The rejection of a field whose value no format allows.

    >>> str(wrong_type("qid", "a string or an integer", True))
    'qid is a string or an integer, not True'
    """
    return Rejected(constants.INVALID_SCHEMA, f"{name} is {expected}, not {shorten(found)}")


OUT_OF_RANGE: Final = "out of range"
"""Part of msgspec's message about a number that does not fit in a float."""

_STR_ONLY: Final = frozenset({str})
_BOOLEANS: Final = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


def as_text(found: Any, name: str) -> str | None:
    """Convert to text; a number becomes text, because other programs do not quote text that looks like a number."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise wrong_type(name, "text", found)
    return str(found)


def as_id(found: Any, name: str) -> str | None:
    """Convert to an id: a string, or an integer as a string."""
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise wrong_type(name, "a string or an integer", found)


def as_ids(found: Any, name: str) -> list[str] | None:
    """Convert to an ordered list of ids; an entry is an id, or an object with an `id`."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise wrong_type(name, "a list of ids", found)
    ids: list[Any] = found
    kinds = set(map(type, ids))
    if dict in kinds:
        ids = [entry.get("id") if isinstance(entry, dict) else entry for entry in ids]
        kinds = set(map(type, ids))
    if kinds <= _STR_ONLY:
        return ids
    if None in ids:
        raise Rejected(constants.INVALID_SCHEMA, f"an entry of {name} has no id: {shorten(found)}")
    return [str(as_id(entry, f"an entry of {name}")) for entry in ids]


def as_number(found: Any, name: str) -> float | None:
    """Convert to a finite number."""
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
    """Convert to seconds since the epoch; ISO 8601 without an offset is UTC, on every machine."""
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
    """Check for a JSON boolean; the string "false" is not a boolean."""
    if found is None or isinstance(found, bool):
        return found
    raise wrong_type(name, "true or false", found)


def as_object(found: Any) -> dict[str, Any]:
    """The members of an object; empty for anything else."""
    return found if isinstance(found, dict) else {}


def as_tags(found: Any) -> dict[str, str]:
    """Convert tags to text, because other programs also use numbers and booleans; a null tag is left out."""
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise wrong_type("tags", "an object", found)
    tags = {}
    for name, tag_value in found.items():
        text = str(tag_value).lower() if isinstance(tag_value, bool) else as_text(tag_value, f"the tag {name!r}")
        if text is not None:
            tags[name] = text
    return tags


def as_verdicts(found: Any) -> list[bool] | None:
    """Convert the relevance of each document: booleans, yes and no, or objects with a `verdict`."""
    if found is None:
        return None
    if not isinstance(found, list):
        raise wrong_type("verdicts", "a list", found)
    return list(_relevance(found))


def _relevance(entries: Iterable[Any]) -> Iterable[bool]:
    for entry in entries:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        relevant = _BOOLEANS.get(str(verdict).strip().lower())
        if relevant is None:
            raise wrong_type("a verdict", "yes or no", verdict)
        yield relevant


def as_type(found: Any, kind: Any, name: str) -> Any:
    """Convert a part of a record by the rules of the trace contract."""
    if found is None:
        return None
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        reason = constants.NON_FINITE if OUT_OF_RANGE in str(error) else constants.INVALID_SCHEMA
        raise Rejected(reason, f"{name}: {error}") from None
