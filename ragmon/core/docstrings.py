"""Docstrings as data: the summary of a class and the sentence of each attribute, for reference pages and schemas.

A docstring of this project has a summary first and the attributes below a line `Attributes:` or `Args:`.
"""

from __future__ import annotations

import inspect
import re
from typing import Final

_ENTRY: Final = re.compile(r"([a-z0-9_, ]+): (.*)")
_SECTION: Final = re.compile(r"^(?:Attributes|Args):\n", re.MULTILINE)


def summary(docstring: str) -> str:
    """What a class is, in one line: its docstring up to the list of attributes.

    >>> from ragmon.core.record import Answer
    >>> summary(Answer.__doc__)
    'The answer of the pipeline.'
    """
    return " ".join(_SECTION.split(inspect.cleandoc(docstring))[0].split())


def attribute_notes(docstring: str) -> dict[str, str]:
    """The sentence of each attribute in the docstring of a class.

    >>> from ragmon.core.record import Tombstone
    >>> attribute_notes(Tombstone.__doc__)
    {'was': 'The kind of the erased entry: `record`, `label`, or one of `SAMPLES`.'}
    """
    found: dict[str, str] = {}
    names: list[str] = []
    _, *sections = _SECTION.split(inspect.cleandoc(docstring))
    for line in "".join(sections[:1]).splitlines():
        entry = _ENTRY.match(line.strip()) if line.startswith("    ") and not line.startswith("     ") else None
        if entry is not None:
            names = entry.group(1).split(", ")
            found |= dict.fromkeys(names, entry.group(2))
        elif names and line.strip():
            found |= {name: f"{found[name]} {line.strip()}" for name in names}
    return found
