"""One line of a trace log becomes a record, a totals line, or the reason it is neither."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from ragmon.core import constants
from ragmon.core.bounds import LARGEST, SHORT, bounded, fits
from ragmon.core.record import Line, Record, Totals, as_label
from ragmon.ingest.fields import OUT_OF_RANGE
from ragmon.ingest.rejected import Rejected, misfit
from ragmon.ingest.shapes import AnyShape, adapt

_record = msgspec.json.Decoder(Record).decode
_totals = msgspec.json.Decoder(Totals).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_any_shape = msgspec.json.Decoder(AnyShape).decode

BOM: Final = b"\xef\xbb\xbf"
_SOURCES: Final = frozenset(constants.SOURCES)
_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_PLACE: Final = re.compile(r"\(byte (\d+)\)")
_LONE_SURROGATE: Final = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])")


Unknown = Callable[[str, str], None]
"""Told a field of a record that is unknown, or cut, and the reason."""


def decode(line: bytes, unknown: Unknown | None = None) -> Line:
    """Decode one line of any trace shape ragmon reads.

    The contract's own lines take one pass in C. Whatever does not fit it, or leaves out what other shapes call by
    another name, takes a second look.

    Args:
        line: One line; the newline does not matter.
        unknown: Told what of the record is out of range, and so is unknown.

    Raises:
        Rejected: With the reason.
    """
    try:
        record = _record(line)
    except msgspec.ValidationError:
        return _second_look(line, unknown)
    except _ERRORS as error:
        if line.startswith(BOM) and not line.startswith(BOM, len(BOM)):
            return decode(line[len(BOM) :], unknown)
        raise _rejection(line, error) from None
    if record.v is None:
        if (
            record.qid is None
            or record.q is None
            or record.retrieved_ids is None
            or record.answer_json is None
            or record.probe is not None
        ):
            return _second_look(line, unknown)
    elif record.v != constants.CONTRACT_VERSION:
        return _second_look(line, unknown)
    if record.kind is not None or (record.source is not None and record.source not in _SOURCES):
        return _second_look(line, unknown)
    latency = record.latency_ms
    return record if len(line) <= SHORT and (latency is None or fits(latency)) else _bounded(record, unknown)


def _bounded(record: Record, unknown: Unknown | None) -> Record:
    """A record without what is out of range."""
    kept, odd = bounded(record)
    if unknown is not None:
        for field, reason in odd.items():
            unknown(field, reason)
    return kept


def _second_look(line: bytes, unknown: Unknown | None) -> Line:
    try:
        found = _any_shape(line)
        if found.kind is None:
            return _bounded(adapt(found), unknown)
        if found.kind == "totals":
            return _counted(_totals(line))
        if found.kind == constants.LABEL:
            return as_label(_object(line))
    except _ERRORS as error:
        raise _rejection(line, error) from None
    except ValueError as error:
        raise Rejected(constants.INVALID_SCHEMA, str(error)) from None
    raise Rejected(constants.INVALID_SCHEMA, f"a line's kind is totals or label, or it has none: {found.kind!r:.80}")


def _counted(line: Totals) -> Totals:
    """A totals line whose counts are such.

    Raises:
        Rejected: One of them would spoil every sum it is in.
    """
    for name, n in (("calls", line.calls), ("kept", line.kept), *line.dropped.items(), *line.latency_ms.items()):
        if n > LARGEST:
            raise misfit(f"the count of {name}", f"at most {LARGEST}", n)
    return line


def _rejection(line: bytes, error: Exception) -> Rejected:
    said = str(error)
    if isinstance(error, UnicodeDecodeError):
        return Rejected(constants.INVALID_UTF8, said)
    if isinstance(error, RecursionError):
        return Rejected(constants.DEPTH, "it is nested too deeply")
    if OUT_OF_RANGE in said or _not_json_number(line, said):
        return Rejected(constants.NON_FINITE, f"a number is not finite or has too many digits ({said})")
    if isinstance(error, msgspec.ValidationError):
        return Rejected(constants.INVALID_SCHEMA, said)
    if "surrogate" in said or _LONE_SURROGATE.search(line):
        return Rejected(constants.INVALID_UTF8, "half a surrogate pair is no character")
    return Rejected(constants.MALFORMED_JSON, said)


def _not_json_number(line: bytes, said: str) -> bool:
    """Whether decoding stopped at one of the numbers Python writes and JSON does not have."""
    place = _PLACE.search(said)
    return place is not None and line.startswith((b"NaN", b"Infinity"), int(place[1]))
