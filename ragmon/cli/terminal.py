"""What differs where stdout is a terminal: the form, the width, and the colour of verdicts."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

import click

from ragmon.export.markdown import terminal_text, text
from ragmon.export.report import Report

_COLOURS: Final = {"pass": "green", "fail": "red", "insufficient": "yellow"}

no_color_option = click.option("--no-color", is_flag=True, help="No colour on a terminal, as NO_COLOR=1.")


def on_terminal(output: str | None) -> bool:
    """Whether a result that goes to `output`, or to stdout, is seen on a terminal."""
    return output is None and sys.stdout is not None and sys.stdout.isatty()


def gate_table(report: Report, output: str | None, *, no_color: bool) -> str:
    """The gates as text: as wide as the terminal and in colour there, plain and unwrapped elsewhere.

    Args:
        report: The report.
        output: The file it is written to; None is stdout.
        no_color: The user wants no colour. NO_COLOR (https://no-color.org) and TERM=dumb say the same.
    """
    if not on_terminal(output):
        return text(report)
    plain = no_color or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    return terminal_text(report, shutil.get_terminal_size().columns, str if plain else _coloured)


def _coloured(verdict: str) -> str:
    return click.style(verdict, fg=_COLOURS.get(verdict))
