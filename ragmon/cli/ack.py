"""`ragmon ack`: tell the monitor that somebody has seen an alarm."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import click

from ragmon.cli.http import AnsweredError, tell
from ragmon.cli.runs import config_option
from ragmon.config.load import load
from ragmon.config.services import Tls
from ragmon.config.settings import Settings
from ragmon.core.escaping import printable_line
from ragmon.monitor.embedded import ACKS_PATH, split


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
    answer = _told(url, {"gate": alert, "pipeline": pipeline, "reason": reason}, settings)
    told = "silenced, and armed again" if answer.get("fired") else "was silent; it starts from nothing"
    click.echo(f"{printable_line(pipeline)}/{printable_line(alert)}: {told}")
    return 0


def _told(url: str | None, body: dict[str, str], settings: Settings) -> dict[str, Any]:
    """Tell the monitor that is meant.

    Without an address that is the one records go to, else the one of `[serve]`: a monitor in the application takes
    acknowledgements where it is read, a server says there that it only reads, and takes them where it is written to.

    Raises:
        RagmonError: Nobody answers, or it was refused.
    """
    named = url or settings.export.endpoint
    try:
        return tell(named or f"http://{settings.serve.admin}", ACKS_PATH, body, settings, reads=not named)
    except AnsweredError as error:
        if named or error.status != HTTPStatus.METHOD_NOT_ALLOWED:
            raise
    scheme = "https" if isinstance(settings.serve.tls, Tls) else "http"
    return tell(f"{scheme}://{settings.serve.otlp}", ACKS_PATH, body, settings)
