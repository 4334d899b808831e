"""Tables of text: aligned columns for a terminal, and Markdown. Names and questions come from outside: see `escape`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from ragmon.core.errors import printable, printable_line

GAP: Final = 2
"""Spaces between two columns on a terminal."""
_NO_WIDTHS: Final[Mapping[int, int]] = MappingProxyType({})

_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
# Characters that format anywhere, those that format at the start of a line or a word, and those that make a link.
_SPECIAL: Final = re.compile(
    r"[\\`*\[\]|~#@&<>]"
    r"|(?<![^\W_])_|_(?![^\W_])"
    r"|^[-+=:](?=\s|-|=|$)|(?<=\d)[.)](?=\s|$)"
    r"|:(?=//)|(?<=www)\.",
    re.IGNORECASE,
)


def escape(text: str) -> str:
    r"""Text that Markdown shows as it is, on one line.

    >>> escape("a|b <script>")
    'a\\|b &lt;script&gt;'
    """
    return _SPECIAL.sub(lambda match: _ENTITIES.get(match[0], f"\\{match[0]}"), printable(text).strip())


def text_table(
    rows: Iterable[Sequence[str]],
    *,
    right: Collection[int] = (),
    widths: Mapping[int, int] = _NO_WIDTHS,
    gap: int = GAP,
) -> list[str]:
    """The lines of a table for a terminal. A column is as wide as its widest cell; control characters are escaped.

    Args:
        rows: The rows, with equally many cells.
        right: The numbers of the columns that are aligned to the right, from 0.
        widths: Fixed widths by the number of the column; a longer cell moves the rest of its line.
        gap: Spaces between two columns.

    >>> text_table([("stage", "scored"), ("ingest", "7")], right=[1])
    ['stage   scored', 'ingest       7']
    """
    cells = [[printable_line(cell) for cell in row] for row in rows]
    longest = [max(map(len, column)) for column in zip(*cells, strict=True)]
    columns = [(widths.get(n, width), n in right) for n, width in enumerate(longest)]
    space = " " * gap
    return [space.join(map(_aligned, row, columns)).rstrip() for row in cells]


def _aligned(cell: str, column: tuple[int, bool]) -> str:
    width, to_the_right = column
    return cell.rjust(width) if to_the_right else cell.ljust(width)


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table.

    Args:
        head: The titles of the columns.
        rows: The rows; cells are Markdown, so text from outside is escaped before.

    >>> markdown_table(["gate", "n"], [["mrr", "7"]])
    ['| gate | n |', '| --- | --- |', '| mrr | 7 |']
    """
    return [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
