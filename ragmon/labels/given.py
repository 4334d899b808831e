"""A label as somebody gave it: checked, or refused with what is wrong."""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from ragmon.contract import Label
from ragmon.errors import shorten
from ragmon.labels.words import FIELDS

LONGEST: Final = 1024
"""Characters of a trace id, a rater or a document's id."""
LONGEST_COMMENT: Final = 10_000
"""Characters of a comment."""
MOST: Final = 1000
"""Documents a label names."""
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)
_SAID: Final = f"{', '.join(FIELDS[:-1])} or {FIELDS[-1]}"


def as_label(told: Any) -> Label:
    """A label.

    Args:
        told: The object somebody gave: `trace_id`, `rater`, and at least one of `correct`, `answerable` and
            `relevant_ids`.

    Raises:
        ValueError: It is none, and what is wrong.

    >>> as_label({"trace_id": "5A1C", "rater": "ada", "correct": True}).trace_id
    '5a1c'
    """
    # Only a journal knows answers: what a label brings along itself is not believed.
    label = msgspec.convert({**told, "kind": "label", "answer": None} if isinstance(told, dict) else told, Label)
    label.trace_id = label.trace_id.lower()
    correct = label.correct
    if not label.trace_id or not label.rater:
        raise ValueError("a label names its trace_id and its rater")
    if isinstance(correct, float | int) and not 0 <= correct <= 1:
        raise ValueError(f"correct is true, false or a share from 0 to 1, not {correct}")
    names = (label.trace_id, label.rater, *(label.relevant_ids or ()))
    if max(map(len, names)) > LONGEST or len(names) > MOST:
        raise ValueError(f"a label names at most {MOST} documents, in at most {LONGEST} characters each")
    if len(label.comment or "") > LONGEST_COMMENT:
        raise ValueError(f"a comment has at most {LONGEST_COMMENT} characters")
    if correct is None and label.answerable is None and label.relevant_ids is None:
        raise ValueError(f"a label says something: {_SAID}")
    try:
        "".join((*names, label.comment or "")).encode()
    except UnicodeEncodeError:
        raise ValueError("a label's texts hold half of a character: they are no Unicode") from None
    return label


def of_a_trace(label: Label) -> Label:
    """A label whose trace id is one: a server's answers have no others. In a log of traces an id may be any text.

    Raises:
        ValueError: It is none, and what would be.
    """
    if not _TRACE_ID.fullmatch(label.trace_id):
        raise ValueError(f"trace_id is 32 hex digits, not {shorten(label.trace_id)}")
    return label
