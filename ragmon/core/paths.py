"""Dotted paths into what a customer's code passes around: `request.messages[-1].content`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.core.errors import RagmonError, shorten

Path = tuple[str | int, ...]
"""Names of members and places in sequences, outermost first."""

_NAME: Final = r"[^.\[\]\s]+"
_PLACE: Final = r"\[-?\d+\]"
_PATH: Final = re.compile(rf"(?:{_NAME}|{_PLACE})(?:\.{_NAME}|{_PLACE})*")
_STEP: Final = re.compile(rf"({_NAME})|\[(-?\d+)\]")


def parse(text: str, parameter: str) -> Path:
    """The path a text writes out.

    Args:
        text: Names joined by dots, places in brackets.
        parameter: Where it was given, for the error.

    Raises:
        RagmonError: It is no path.

    >>> parse("messages[-1].content", "question")
    ('messages', -1, 'content')
    """
    if not isinstance(text, str) or not _PATH.fullmatch(text):
        raise RagmonError(f"{parameter} is no path: {shorten(text)}", hint="a path such as messages[-1].content")
    return tuple(name or int(place) for name, place in _STEP.findall(text))


def look_up(value: Any, path: Path) -> Any:
    """Follow a path through mappings, sequences and attributes; None where it ends.

    >>> look_up({"messages": [{"content": "Is it?"}]}, ("messages", -1, "content"))
    'Is it?'
    """
    for step in path:
        if value is None:
            return None
        value = member(value, step) if isinstance(step, str) else _at(value, step)
    return value


def _at(value: Any, place: int) -> Any:
    held = isinstance(value, Sequence) and -len(value) <= place < len(value)
    return value[place] if held else None


def member(value: Any, name: str) -> Any:
    """A member of a mapping or an attribute of an object; None where there is none. Methods are no members."""
    if type(value) is dict:  # most are, and asking an abstract class takes ten times as long
        found = value.get(name)
    else:
        found = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return None if found is None or callable(found) else found
