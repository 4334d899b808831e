"""Dotted paths into the arguments and results of a traced function: `request.messages[-1].content`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ragmon.core.errors import RagmonError, shorten

Path = tuple[str | int, ...]
"""Member names and sequence indices, outermost first."""

_NAME: Final = r"[^.\[\]\s]+"
_INDEX: Final = r"\[-?\d+\]"
_PATH: Final = re.compile(rf"(?:{_NAME}|{_INDEX})(?:\.{_NAME}|{_INDEX})*")
_STEP: Final = re.compile(rf"({_NAME})|\[(-?\d+)\]")


def parse(text: str, parameter: str) -> Path:
    """Parse a path.

    Args:
        text: Names joined by dots, indices in brackets.
        parameter: The parameter it was given for, for the error.

    Raises:
        RagmonError: The text is no path.

    >>> parse("messages[-1].content", "question")
    ('messages', -1, 'content')
    """
    if not isinstance(text, str) or not _PATH.fullmatch(text):
        raise RagmonError(f"{parameter} is no path: {shorten(text)}", hint="a path such as messages[-1].content")
    return tuple(name or int(index) for name, index in _STEP.findall(text))


def look_up(value: Any, path: Path) -> Any:
    """Follow a path through mappings, sequences and attributes; None where a step does not exist.

    >>> look_up({"messages": [{"content": "Is it?"}]}, ("messages", -1, "content"))
    'Is it?'
    """
    for step in path:
        if value is None:
            return None
        value = member(value, step) if isinstance(step, str) else _item_at(value, step)
    return value


def _item_at(value: Any, index: int) -> Any:
    exists = isinstance(value, Sequence) and -len(value) <= index < len(value)
    return value[index] if exists else None


def member(value: Any, name: str) -> Any:
    """A member of a mapping or an attribute of an object; None where there is none. Methods are left out."""
    if type(value) is dict:  # the usual case; a check against an abstract class takes ten times as long
        result = value.get(name)
    else:
        result = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    return None if result is None or callable(result) else result
