"""`ragmon why`: ask the monitor what broke."""

from __future__ import annotations

import http.client
import json
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import click
from pydantic_core import PydanticCustomError

from ragmon.acks import split
from ragmon.cli.ack import _port
from ragmon.cli.runs import config_option, write
from ragmon.config.kinds import duration
from ragmon.config.load import load
from ragmon.errors import RagmonError
from ragmon.export.why import as_json, render
from ragmon.why import load as load_why

PATH: Final = "/api/why"
_TIMEOUT: Final = 30.0
"""Seconds."""
_LARGEST: Final = 16 << 20
"""Bytes of an answer that are read."""


def seconds(_: click.Context, __: click.Parameter, value: str | None) -> float | None:
    """A stretch of time such as `2h` in seconds."""
    if value is None:
        return None
    try:
        return float(duration(value))
    except PydanticCustomError as error:
        hint = "a number and a unit: 500s, 30m, 2h, 1d"
        raise click.BadParameter(f"{value!r} is no stretch of time, which is {hint}") from error


@click.command()
@click.argument("gate", metavar="[PIPELINE/]GATE")
@click.option("--since", callback=seconds, metavar="TIME", help="How far to look back. Default: 2h before the alarm.")
@click.option("--url", metavar="URL", help="The monitor. Default: `[serve] admin` of the config.")
@click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True, help="What to write."
)
@config_option
def why(gate: str, since: float | None, url: str | None, form: str, config: str | None) -> int:
    """Say what broke: since when GATE is worse, what changed with it, and which traces to open. Times are UTC.

    Exit codes: 0, 3 there is no such gate, or no monitor.
    """
    settings = load(config)
    name, pipeline = split(gate, settings.pipeline)
    asked = {"gate": name, "pipeline": pipeline, **({} if since is None else {"since": f"{since:g}"})}
    answer = _get(url or f"http://{settings.serve.admin}", asked)
    found, traces = load_why(answer), _traces(answer.get("traces"))
    link = settings.of(pipeline).links.trace
    write(as_json(found, traces) + "\n" if form == "json" else render(found, traces, link), None)
    return 0


def _traces(given: Any) -> list[dict[str, Any]]:
    return [trace for trace in given if isinstance(trace, dict)] if isinstance(given, list) else []


def _get(url: str, asked: dict[str, str]) -> dict[str, Any]:
    """Ask the monitor.

    Raises:
        RagmonError: Nobody answers, or not with an explanation.
    """
    place = urlsplit(url)
    port = _port(place)
    if place.scheme not in ("http", "https") or place.hostname is None:
        raise RagmonError(f"--url is no address: {url!r}", hint="http://127.0.0.1:9464")
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    connection = kind(place.hostname, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", f"{place.path.rstrip('/')}{PATH}?{urlencode(asked)}")
        response = connection.getresponse()
        status, text = response.status, response.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        hint = "is the monitor running? --url URL"
        raise RagmonError(f"no monitor answers on {place.netloc} ({error})", hint=hint) from error
    finally:
        connection.close()
    return _read(status, text, place.netloc)


def _read(status: int, text: bytes, netloc: str) -> dict[str, Any]:
    """The object in an answer.

    Raises:
        RagmonError: There is none, or it says what is wrong.
    """
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError):
        answer = None
    if status == http.client.OK and isinstance(answer, dict):
        return answer
    told = answer if isinstance(answer, dict) else {}
    message = str(told.get("error") or f"{netloc} answered {status}")
    raise RagmonError(message, hint=str(told.get("hint") or "--url names a monitor of another kind?"))
