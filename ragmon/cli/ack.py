"""`ragmon ack`: tell the monitor that somebody has seen an alarm."""

from __future__ import annotations

import http.client
import json
from typing import Any
from urllib.parse import SplitResult, urlsplit

import click

from ragmon.acks import PATH, split
from ragmon.cli import printable
from ragmon.cli.runs import config_option
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.errors import RagmonError

_TIMEOUT = 10.0


@click.command()
@click.argument("alarm", metavar="[PIPELINE/]ALARM")
@click.option("--reason", required=True, metavar="TEXT", help="What was found; it stands beside the acknowledgement.")
@click.option("--url", metavar="URL", help="The monitor. Default: the server of the config, else the one in the app.")
@config_option
def ack(alarm: str, reason: str, url: str | None, config: str | None) -> int:
    """Silence ALARM and arm it again: it starts from nothing, and fires anew if the fault lasts.

    Exit codes: 0, 3 there is no such alarm, or no monitor.
    """
    settings = load(config)
    alert, pipeline = split(alarm, settings.pipeline)
    answer = _post(url or _usual(settings), {"gate": alert, "pipeline": pipeline, "reason": reason}, settings)
    told = "silenced, and armed again" if answer.get("fired") else "was silent; it starts from nothing"
    click.echo(f"{printable(pipeline)}/{printable(alert)}: {told}")
    return 0


def _usual(settings: Settings) -> str:
    """Where this configuration's monitor listens."""
    return str(settings.export.endpoint or f"http://{settings.serve.admin}")


def _post(url: str, body: dict[str, str], settings: Settings) -> dict[str, Any]:
    """Send it.

    Raises:
        RagmonError: Nobody answers, or it was refused.
    """
    place = urlsplit(url)
    port = _port(place)
    kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
    if place.scheme not in ("http", "https") or place.hostname is None:
        raise RagmonError(f"--url is no address: {url!r}", hint="http://127.0.0.1:9464")
    headers = {"Content-Type": "application/json", **_token(settings)}
    connection = kind(place.hostname, port, timeout=_TIMEOUT)
    try:
        connection.request("POST", f"{place.path.rstrip('/')}{PATH}", json.dumps(body).encode(), headers)
        response = connection.getresponse()
        status, text = response.status, response.read(1 << 20)
    except (OSError, http.client.HTTPException) as error:
        hint = "is the monitor running? --url URL"
        raise RagmonError(f"no monitor answers on {place.netloc} ({error})", hint=hint) from error
    finally:
        connection.close()
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if status != http.client.OK or not isinstance(answer, dict):
        told = answer if isinstance(answer, dict) else {}
        message = str(told.get("error") or f"{place.netloc} answered {status}")
        raise RagmonError(message, hint=str(told.get("hint") or "--url names a monitor of another kind?"))
    return answer


def _port(place: SplitResult) -> int | None:
    try:
        return place.port
    except ValueError as error:
        raise RagmonError(f"--url has no such port: {place.netloc!r}", hint="http://127.0.0.1:9464") from error


def _token(settings: Settings) -> dict[str, str]:
    file = settings.serve.token_file
    if file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {file.read_text(encoding='utf-8').strip()}"}
    except (OSError, UnicodeDecodeError) as error:
        raise RagmonError(f"{file}: the token cannot be read ({error})", hint="check `[serve] token_file`") from error
