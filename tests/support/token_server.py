"""A server whose write port takes a token, and requests that carry it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import contextmanager

from ragmon.config.load import load
from ragmon.server.server import Server
from tests.support.serving import QUICK, Running, configuration
from tests.support.waiting import TIMEOUT


def config_with_token(folder, token, text=""):
    """Writes a ragmon.toml whose write port takes a token; returns its path."""
    (folder / "token").write_text(f"{token}\n", encoding="utf-8")
    path = configuration(folder, text)
    path.write_text(f'{path.read_text(encoding="utf-8")}token_file = "token"\n', encoding="utf-8")
    return path


@contextmanager
def serving_with_token(folder, token, text="", **how):
    """A server in this process that takes a token.

    Args:
        folder: Where its configuration and its state lie.
        token: The token.
        text: The configuration beside `[serve]`.
        how: Passed on to the server.
    """
    settings = load(config_with_token(folder, token, text), environ={})
    with Server(settings, **{"assembly_limits": QUICK, **how}) as server:
        yield Running(server)


def post_with_token(url, body, token, kind="application/json"):
    """Status and text of what is answered to a body that comes with a token."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind, "Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")
