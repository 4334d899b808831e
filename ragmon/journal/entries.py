"""The lines of a journal: records and totals as a trace log has them, and what people say about them."""

from __future__ import annotations

from typing import Final

import msgspec

from ragmon.contract import Label, Record, Totals

RECORD: Final = "record"
LABEL: Final = "label"
"""What can be forgotten."""


class Ack(msgspec.Struct, kw_only=True, tag_field="kind", tag="ack"):
    """Somebody has seen an alarm.

    Attributes:
        pipeline, alert: Which.
        reason: What was found.
    """

    pipeline: str
    alert: str
    reason: str


class Forgotten(msgspec.Struct, tag_field="kind", tag="forgotten"):
    """The place of something that was forgotten on request.

    Attributes:
        was: What it was, `record` or `label`.
    """

    was: str = RECORD


class Quarantined(msgspec.Struct, tag_field="kind", tag="quarantined"):
    """The place of something that is not counted: twice the process ended while it was.

    Attributes:
        was: What it was, `record`, `label` or another kind.
    """

    was: str = RECORD


Entry = Record | Totals | Label | Ack | Forgotten | Quarantined

_encoder: Final = msgspec.json.Encoder()
_record: Final = msgspec.json.Decoder(Record)
_totals: Final = msgspec.json.Decoder(Totals)
_other: Final = msgspec.json.Decoder(Label | Ack | Forgotten | Quarantined)
_KIND: Final = b'{"kind":"'
_TOTALS: Final = b'{"kind":"totals"'
_FORGOTTEN: Final = b'{"kind":"forgotten"'
_QUARANTINED: Final = b'{"kind":"quarantined"'


def encode(entry: Entry) -> bytes:
    """One line, newline included."""
    return _encoder.encode(entry) + b"\n"


def is_forgotten(line: bytes) -> bool:
    """Whether a line stands for something that was forgotten on request."""
    return line.startswith(_FORGOTTEN)


def is_quarantined(line: bytes) -> bool:
    """Whether a line stands for something that was set aside."""
    return line.startswith(_QUARANTINED)


def quarantined(line: bytes) -> bytes:
    """What stands in the place of a line that is set aside, without a newline.

    >>> quarantined(b'{"kind":"label","trace_id":"1"}'), quarantined(b'{"trace_id":"1"}')
    (b'{"kind":"quarantined","was":"label"}', b'{"kind":"quarantined","was":"record"}')
    """
    return _encoder.encode(Quarantined(_kind(line).kind))


class _Kind(msgspec.Struct):
    """What of a line says what it is."""

    kind: str = RECORD


_kind: Final = msgspec.json.Decoder(_Kind).decode


def decode(line: bytes) -> Entry:
    """The entry a line holds.

    Args:
        line: What `encode` wrote; the kind, where there is one, stands first.

    Raises:
        msgspec.DecodeError: It holds none.

    >>> decode(encode(Ack(pipeline="support", alert="precision", reason="rolled back"))).alert
    'precision'
    """
    if not line.startswith(_KIND):
        return _record.decode(line)
    return _totals.decode(line) if line.startswith(_TOTALS) else _other.decode(line)
