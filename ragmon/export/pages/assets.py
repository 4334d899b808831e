"""The files that pages fetch from the monitor itself: style sheet and script; nothing comes from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Final

CONTENT_TYPES: Final = {
    "ragmon.css": "text/css; charset=utf-8",
    "ragmon.js": "text/javascript; charset=utf-8",
    "ragmon.svg": "image/svg+xml",
    "time_chart.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.iife.min.js": "text/javascript; charset=utf-8",
    "uplot/uPlot.min.css": "text/css; charset=utf-8",
}
"""The files, with their media types."""
PATHS: Final = {f"/static/{name}": name for name in CONTENT_TYPES}
"""Their paths on the admin port."""
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of pages (W3C CSP3): no inline style, no inline script, no other site."""


@cache
def asset(name: str) -> bytes:
    """The content of a file."""
    return resources.files(__package__).joinpath("static", name).read_bytes()
