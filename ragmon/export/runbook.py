"""The runbook as a page: what to do when an alert fires, at an address that needs no setting.

Every admin port serves it, so that an alert can link to the monitor that it is about. The text is docs/runbook.md;
`make reference` makes HTML of it, and a test compares both. It has neither scripts nor external resources.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from typing import Final

PATH: Final = "/runbook"
_STYLE: Final = """
body{font:15px/1.6 system-ui,sans-serif;margin:2rem auto;max-width:52rem;padding:0 1rem;color:#1b1f24;background:#fff}
pre{overflow-x:auto;padding:.6rem .8rem;background:#f6f8fa}code{font:13px/1.5 ui-monospace,monospace}
table{border-collapse:collapse;margin:.5rem 0 1rem}ul{columns:16rem}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d8dee4;vertical-align:top}
h2{margin-top:2.5rem;border-bottom:1px solid #d8dee4}:target{background:#fff8c5}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}pre{background:#161b22}a{color:#58a6ff}
h2,th,td{border-color:#30363d}:target{background:#3a2d00}}
"""
STYLE_HASH: Final = f"sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}"
"""The hash of the page's style sheet for its Content-Security-Policy (W3C CSP3, 2.3.1)."""


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
    return (
        '<!DOCTYPE html>\n<html lang="en" xmlns="http://www.w3.org/1999/xhtml"><head><meta charset="utf-8"/>'
        '<meta name="viewport" content="width=device-width"/>'
        f"<title>ragmon: the runbook</title><style>{_STYLE}</style></head><body>\n{text}</body></html>\n"
    )
