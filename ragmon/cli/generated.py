"""Whether files that were generated once are those that would be generated now."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ragmon.core.escaping import printable_line

DIFFERS: Final = 1


def compare(files: Mapping[Path, str]) -> int:
    """Name the files that are missing or say something else.

    Args:
        files: What would be generated.

    Returns:
        The exit code: 0 where none differs.
    """
    differ = 0
    for path, text in files.items():
        there = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
        if there != text:
            differ = DIFFERS
            click.echo(f"{printable_line(str(path))}: {'missing' if there is None else 'not what would be written'}")
    return differ
