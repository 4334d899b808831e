"""The ASGI application that shows one page, such as a report."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ragmon.monitor.http.admin import HEADERS, check_origin

POLICY: Final = (
    "sandbox allow-scripts; default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The Content-Security-Policy of a page in one file: it fetches nothing, and no other page of this host is its own."""


def document_app(text: str, hosts: Collection[str]) -> ASGIApp:
    """An application that answers `/` with a page.

    Args:
        text: The page.
        hosts: The names it may be asked by, beside IP addresses and localhost.
    """

    async def page(_: Request) -> Response:
        return HTMLResponse(text, headers=HEADERS | {"Content-Security-Policy": POLICY})

    return check_origin(Starlette(routes=[Route("/", page)]), hosts)
