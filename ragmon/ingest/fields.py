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
        lost_spans: The number of spans lost with it, as far as they can be counted; 1 for anything but spans.
    """

    def __init__(self, reason: str, detail: str, lost_spans: int = 1) -> None:
        super().__init__(detail)
        self.reason = reason
        self.lost_spans = lost_spans


def wrong_type(name: str, expected: str, value: object) -> Rejected:
    """The rejection of a field whose value no format allows.

    >>> str(wrong_type("qid", "a string or an integer", True))
    'qid is a string or an integer, not True'
    """
    return Rejected(constants.INVALID_SCHEMA, f"{name} is {expected}, not {shorten(value)}")


OUT_OF_RANGE: Final = "out of range"
"""Part of msgspec's message about a number that does not fit in a float."""

_STR_ONLY: Final = frozenset({str})
_BOOLEANS: Final = {"yes": True, "no": False, "true": True, "false": False, "1": True, "0": False}


def as_text(value: Any, name: str) -> str | None:
    """Convert to text; a number becomes text, because other programs do not quote text that looks like a number."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "text", value)
    return str(value)


def as_id(value: Any, name: str) -> str | None:
    """Convert to an id: a string, or an integer as a string."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise wrong_type(name, "a string or an integer", value)


def as_ids(value: Any, name: str) -> list[str] | None:
    """Convert to an ordered list of ids; an entry is an id, or an object with an `id`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(name, "a list of ids", value)
    ids: list[Any] = value
    kinds = set(map(type, ids))
    if dict in kinds:
        ids = [entry.get("id") if isinstance(entry, dict) else entry for entry in ids]
        kinds = set(map(type, ids))
    if kinds <= _STR_ONLY:
        return ids
    if None in ids:
        raise Rejected(constants.INVALID_SCHEMA, f"an entry of {name} has no id: {shorten(value)}")
    return [str(as_id(entry, f"an entry of {name}")) for entry in ids]


def as_number(value: Any, name: str) -> float | None:
    """Convert to a finite number."""
    if value is None or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_type(name, "a number", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Rejected(constants.NON_FINITE, f"{name} is not finite or has too many digits")
    return number


def as_time(value: Any, name: str) -> float | None:
    """Convert to seconds since the epoch; ISO 8601 without an offset is UTC, on every machine."""
    seconds = value
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise wrong_type(name, "seconds since 1970 or ISO 8601", value) from None
        seconds = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
    number = as_number(seconds, name)
    if number is not None and not 0 <= number < LATEST:
        raise wrong_type(name, "seconds (not milliseconds) since 1970, before the year 10000", value)
    return number


def as_flag(value: Any, name: str) -> bool | None:
    """Check for a JSON boolean; the string "false" is not a boolean."""
    if value is None or isinstance(value, bool):
        return value
    raise wrong_type(name, "true or false", value)


def as_object(value: Any) -> dict[str, Any]:
    """The members of an object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def as_tags(value: Any) -> dict[str, str]:
    """Convert tags to text, because other programs also use numbers and booleans; a null tag is left out."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise wrong_type("tags", "an object", value)
    tags = {}
    for name, tag_value in value.items():
        text = str(tag_value).lower() if isinstance(tag_value, bool) else as_text(tag_value, f"the tag {name!r}")
        if text is not None:
            tags[name] = text
    return tags


def as_verdicts(value: Any) -> list[bool] | None:
    """Convert the relevance of each document: booleans, yes and no, or objects with a `verdict`."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type("verdicts", "a list", value)
    return list(_relevance(value))


def _relevance(entries: Iterable[Any]) -> Iterable[bool]:
    for entry in entries:
        verdict = entry.get("verdict") if isinstance(entry, dict) else entry
        relevant = _BOOLEANS.get(str(verdict).strip().lower())
        if relevant is None:
            raise wrong_type("a verdict", "yes or no", verdict)
        yield relevant


def as_type(value: Any, kind: Any, name: str) -> Any:
    """Convert a part of a record by the rules of the trace contract."""
    if value is None:
        return None
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = constants.NON_FINITE if OUT_OF_RANGE in str(error) else constants.INVALID_SCHEMA
        raise Rejected(reason, f"{name}: {error}") from None
