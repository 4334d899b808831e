"""What people send as JSON: labels, and acknowledgements of alarms."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from ragmon.core import constants
from ragmon.monitor.embedded import LONGEST
from ragmon.server.doors.envelope import oversize
from ragmon.server.doors.refusals import TurnedAwayError

LABELS: Final = 10_000
"""Labels of one request."""
_VALUES: Final = 50 * LABELS
"""Values and containers of one request: each costs memory, however few bytes it takes."""
_LABEL: Final = '{"trace_id": "...", "correct": true, "rater": "..."}'
_ACKNOWLEDGEMENT: Final = '{"gate": "answer_precision", "pipeline": "support", "reason": "rolled back"}'


class Acknowledgement(NamedTuple):
    """Somebody has seen an alarm.

    Attributes:
        pipeline: Whose it is.
        alert: Its name.
        reason: What was found.
    """

    pipeline: str
    alert: str
    reason: str


def labels(body: bytes) -> list[dict[str, Any]]:
    """The labels of a body: one object, or an array of them.

    Raises:
        TurnedAwayError: It is neither (400), or holds too many (413).

    >>> labels(b'{"trace_id": "5a1c", "correct": true}')
    [{'trace_id': '5a1c', 'correct': True}]
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") > _VALUES:
        raise TurnedAwayError(
            413, constants.OVERSIZE, f"there are more than {_VALUES} values", hint="send less at once"
        )
    found = _read(body, _LABEL)
    many = found if isinstance(found, list) else [found]
    if not all(isinstance(one, dict) for one in many):
        raise TurnedAwayError(400, constants.INVALID_SCHEMA, "labels are an object or an array of objects", hint=_LABEL)
    if len(many) > LABELS:
        hint = f"at most {LABELS} in one request"
        raise TurnedAwayError(413, constants.OVERSIZE, f"there are {len(many)} labels", hint=hint)
    return many


def acknowledgement(body: bytes) -> Acknowledgement:
    """The acknowledgement in a body; where it names no pipeline, the usual one is meant.

    Raises:
        TurnedAwayError: It is none (400), or too large (413).

    >>> acknowledgement(b'{"gate": "mrr", "reason": "rolled back"}')
    Acknowledgement(pipeline='default', alert='mrr', reason='rolled back')
    """
    if len(body) > LONGEST:
        raise oversize(LONGEST)
    found = _read(body, _ACKNOWLEDGEMENT)
    if not isinstance(found, dict) or not {"gate", "reason"} <= found.keys():
        raise TurnedAwayError(400, constants.INVALID_SCHEMA, "this is no acknowledgement", hint=_ACKNOWLEDGEMENT)
    said = Acknowledgement(found.get("pipeline", constants.DEFAULT_PIPELINE), found["gate"], found["reason"])
    if not all(isinstance(part, str) and part for part in said):
        wrong = "gate, pipeline and reason are texts"
        raise TurnedAwayError(400, constants.INVALID_SCHEMA, wrong, hint="none of them empty")
    return said


def _read(body: bytes, hint: str) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TurnedAwayError(400, constants.MALFORMED_JSON, "this is no JSON", hint=hint) from None
