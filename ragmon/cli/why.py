"""`ragmon why`: ask a monitor for the cause of an alarm. `ragmon ack`: acknowledge an alarm."""

from __future__ import annotations

import os
from getpass import getuser
from http import HTTPStatus
from typing import Any, Final

import click
from pydantic_core import PydanticCustomError

from ragmon.cli.client import ErrorResponseError, get_json, post_json, read_back
from ragmon.cli.common import write
from ragmon.config.load import load
from ragmon.config.services import TlsTable, address_of
from ragmon.config.settings import Settings
from ragmon.config.units import duration
from ragmon.core.constants import ACKS_PATH
from ragmon.core.errors import printable_line
from ragmon.export.text import why_json, why_text
from ragmon.gates.change import Why
from ragmon.monitor.embedded import split


def ack(alarm: str, reason: str, by: str | None, url: str | None, config: str | None) -> int:
    """Silence ALARM and arm it again: it starts from nothing, and fires anew if the fault lasts."""
    settings = load(config)
    alert, pipeline = split(alarm, settings.pipeline)
    body = {"gate": alert, "pipeline": pipeline, "reason": reason, "by": _login() if by is None else by}
    response = _acknowledge(url, body, settings)
    effect = "silenced, and armed again" if response.get("fired") else "was silent; it starts from nothing"
    click.echo(f"{printable_line(pipeline)}/{printable_line(alert)}: {effect}")
    return 0


def _login() -> str:
    """The name of whoever is logged in; "" where the system has none, as in some containers."""
    try:
        return getuser()
    except (OSError, KeyError, ImportError):
        return ""


def _acknowledge(url: str | None, body: dict[str, str], settings: Settings) -> dict[str, Any]:
    """Send the acknowledgement to the monitor.

    Without an address it goes to the server records are exported to, else to the one of `[serve]`. A monitor in the
    application accepts acknowledgements at its admin port. A server rejects them there with 405 (method not allowed)
    and accepts them at its write port.

    Raises:
        RagmonError: No monitor responds, or it rejects the acknowledgement.
    """
    address = url or address_of(settings.export.endpoint, os.environ)
    try:
        return post_json(address or f"http://{settings.serve.admin}", ACKS_PATH, body, settings, reads=not address)
    except ErrorResponseError as error:
        if address or error.status != HTTPStatus.METHOD_NOT_ALLOWED:
            raise
    scheme = "https" if isinstance(settings.serve.tls, TlsTable) else "http"
    return post_json(f"{scheme}://{settings.serve.otlp}", ACKS_PATH, body, settings)


WHY_PATH: Final = "/api/why"


def seconds(value: str) -> float:
    """Parse a duration such as `2h` into seconds.

    Raises:
        click.BadParameter: It is none.
    """
    try:
        return float(duration(value))
    except PydanticCustomError as error:
        hint = "a number and a unit: 500s, 30m, 2h, 1d"
        raise click.BadParameter(f"{value!r} is no stretch of time, which is {hint}", param_hint="'--since'") from error


def why(gate: str, since: str | None, url: str | None, form: str, config: str | None) -> int:
    """Say what broke: since when it is worse, what changed with it, and which traces to open. Times are UTC."""
    settings = load(config)
    name, pipeline = split(gate, settings.pipeline)
    params = {"gate": name, "pipeline": pipeline, **({} if since is None else {"since": f"{seconds(since):.15g}"})}
    response = get_json(url or f"http://{settings.serve.admin}", WHY_PATH, params)
    diagnosis, traces = read_back(response, Why, "explanation of a gate"), _trace_objects(response.get("traces"))
    link = settings.of(pipeline).links.trace
    show = "ragmon show {trace_id}" + ("" if url is None else f" --url {url}")
    write(why_json(diagnosis, traces) + "\n" if form == "json" else why_text(diagnosis, traces, link, show), None)
    return 0


def _trace_objects(value: Any) -> list[dict[str, Any]]:
    return [trace for trace in value if isinstance(trace, dict)] if isinstance(value, list) else []
