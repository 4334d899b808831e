"""One line of a trace log becomes a record, a totals line, or the reason it is neither."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from ragmon import names
from ragmon.contract import Record, Totals
from ragmon.ingest.shapes import ShapeError, adapt

_record = msgspec.json.Decoder(Record).decode
_totals = msgspec.json.Decoder(Totals).decode
_anything = msgspec.json.Decoder().decode
_NOT_JSON: Final = (b"NaN", b"Infinity")


class Rejected(Exception):  # noqa: N818 - an outcome that is counted, not a failure of the program
    """A line that is no record; `reason` is one of `ragmon.names`, `detail` says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def decode(line: bytes) -> Record | Totals:
    """Decode one line of any trace shape ragmon reads.

    The contract's own lines take one pass in C. Whatever does not fit it, or leaves out what other shapes call by
    another name, takes a second look.

    Args:
        line: One line; the newline does not matter.

    Raises:
        Rejected: With the reason.
    """
    try:
        record = _record(line)
    except msgspec.ValidationError:
        return _second_look(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _rejected(line, error) from None
    if record.kind is not None:
        return _totals_line(line, record.kind)
    if record.v is None and (record.answer_json is None or record.qid is None):
        return _second_look(line)
    return record


def _totals_line(line: bytes, kind: str) -> Totals:
    if kind != "totals":
        raise Rejected(names.INVALID_SCHEMA, f"unknown kind of line {kind!r}")
    try:
        return _totals(line)
    except msgspec.ValidationError as error:
        raise Rejected(names.INVALID_SCHEMA, str(error)) from None


def _second_look(line: bytes) -> Record:
    try:
        value: Any = _anything(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _rejected(line, error) from None
    try:
        return adapt(value)
    except ShapeError as error:
        raise Rejected(names.INVALID_SCHEMA, str(error)) from None


def _rejected(line: bytes, error: Exception) -> Rejected:
    if isinstance(error, UnicodeDecodeError):
        return Rejected(names.INVALID_UTF8, str(error))
    if isinstance(error, RecursionError):
        return Rejected(names.DEPTH, "nested too deeply")
    if "out of range" in str(error) or any(word in line for word in _NOT_JSON):
        return Rejected(names.NON_FINITE, "a number that is not finite or has too many digits")
    return Rejected(names.MALFORMED_JSON, str(error))
