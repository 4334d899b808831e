"""Docstrings as data: the summary of a class and the sentence of each attribute, for reference pages and schemas.

A docstring of this project has a summary first and the attributes below a line `Attributes:` or `Args:`.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

_ENTRY: Final = re.compile(r"([a-z0-9_, ]+): (.*)")
_SECTION: Final = re.compile(r"^(?:Attributes|Args):\n", re.MULTILINE)


def summary(model: type) -> str:
    """What a class is, in one line: its docstring up to the list of attributes.

    >>> from ragmon.core.record import Answer
    >>> summary(Answer)
    'The answer of the pipeline.'
    """
    text = _SECTION.split(inspect.getdoc(model) or "")[0]
    return " ".join(text.split())


def attribute_notes(model: type) -> dict[str, str]:
    """The sentence of each attribute of a class, those of the classes it extends first.

    >>> from ragmon.core.record import Tombstone
    >>> attribute_notes(Tombstone)
    {'was': 'The kind of the erased entry: `record`, `label`, or one of `SAMPLES`.'}
    """
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        names: list[str] = []
        _, *sections = _SECTION.split(inspect.cleandoc(each.__doc__ or ""))
        for line in "".join(sections[:1]).splitlines():
            entry = _ENTRY.match(line.strip()) if line.startswith("    ") and not line.startswith("     ") else None
            if entry is not None:
                names = entry.group(1).split(", ")
                found |= dict.fromkeys(names, entry.group(2))
            elif names and line.strip():
                found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
