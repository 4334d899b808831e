"""A page as one file that needs nothing else: its style and its script stand in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from markupsafe import Markup

from ragmon.core.http_client import current_version
from ragmon.export.markdown import percent
from ragmon.export.pages.assets import asset
from ragmon.export.pages.rendering import render
from ragmon.export.schema import BaselineDrop, ComparedGate

GENERATOR: Final = "ragmon "
"""What the `generator` of a file begins with: `ragmon view` knows its own files by it."""
FLIPS: Final = 50
"""Flipped gold items that are listed for each gate."""


def document(template: str, *, script: bool = False, **data: Any) -> str:
    """A page as one file.

    Args:
        template: The name of a template that extends `document.html.jinja`.
        script: Whether it has a table to sort and filter.
        data: What it shows.
    """
    style = Markup(asset("ragmon.css").decode())  # noqa: S704 - a file of this package
    code = Markup(asset("report.js").decode() if script else "")  # noqa: S704 - a file of this package
    return render(template, style=style, script=code, generator=f"{GENERATOR}{current_version()}", **data)


def flips_of(comparison: BaselineDrop | ComparedGate) -> dict[str, Any]:
    """The name of a gate and the gold items that flipped, for the macro `flips`."""
    flips: Sequence[tuple[str, str, str]] = [
        (flip.qid, percent(flip.before), percent(flip.after)) for flip in comparison.flips[:FLIPS]
    ]
    return {
        "name": comparison.name,
        "flips": flips,
        "more_flips": len(comparison.flips) - len(flips),
    }
