"""Dotted paths into JSON, and into the arguments and results of a traced function: `request.messages[-1].content`."""

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
    """Follow a path through the objects and arrays of JSON; None where a step does not exist.

    >>> look_up({"messages": [{"content": "Is it?"}]}, ("messages", -1, "content"))
    'Is it?'
    """
    for step in path:
        if isinstance(step, str):
            value = value.get(step) if isinstance(value, Mapping) else None
        else:
            exists = isinstance(value, Sequence) and -len(value) <= step < len(value)
            value = value[step] if exists else None
    return value
