"""The runbook as a page: what to do when an alert fires, at an address that needs no setting.

Every admin port serves it, so that an alert can link to the monitor that it is about. The text is docs/runbook.md;
`make reference` makes HTML of it, and a test compares both.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

from markupsafe import Markup

from ragmon.export.pages.rendering import render

PATH: Final = "/runbook"


def address(base: str, alert: str) -> str:
    """The address of an alert's section.

    Args:
        base: The address of the status page.
        alert: The name of the alert, or a text that stands for it in lower case.

    >>> address("https://ragmon.example/", "RagmonDown")
    'https://ragmon.example/runbook#ragmondown'
    """
    return f"{base.rstrip('/')}{PATH}#{alert.lower()}"


@cache
def page() -> str:
    """The runbook as an HTML page; the anchor of a section is the name of its alert in lower case."""
    text = resources.files(__package__).joinpath("runbook.html").read_text(encoding="utf-8")
    _, _, body = text.partition("</h1>\n")
    focusable = body.replace("<pre>", '<pre tabindex="0">')  # a keyboard can scroll it
    return render("runbook.html.jinja", root="", title="The runbook", refresh=0, text=Markup(focusable))  # noqa: S704 - own text
