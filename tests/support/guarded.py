"""A server whose write port takes a token, requests that carry it, and commands run beside a server in this process."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from contextlib import contextmanager

from ragmon.config.load import load
from ragmon.server.server import Server
from tests.support.command_line import ragmon
from tests.support.serving import PATIENCE, QUICK, Running, configuration


def with_token(folder, token, text=""):
    """Writes a ragmon.toml whose write port takes a token; returns its path."""
    (folder / "token").write_text(f"{token}\n", encoding="utf-8")
    path = configuration(folder, text)
    path.write_text(f'{path.read_text(encoding="utf-8")}token_file = "token"\n', encoding="utf-8")
    return path


@contextmanager
def guarded(folder, token, text="", **how):
    """A server in this process that takes a token.

    Args:
        folder: Where its configuration and its state lie.
        token: The token.
        text: The configuration beside `[serve]`.
        how: Passed on to the server.
    """
    settings = load(with_token(folder, token, text), environ={})
    with Server(settings, **{"assembly_limits": QUICK, **how}) as server:
        yield Running(server)


def authorised(url, body, token, kind="application/json"):
    """Status and text of what is answered to a body that comes with a token."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": kind, "Authorization": f"Bearer {token}"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(errors="replace")


def beside(*arguments, **options):
    """The command run to its end beside a server in this process: gRPC's threads do not bear a fork.

    Args:
        arguments: What stands after `ragmon`.
        options: Of `command_line.start`.
    """
    return ragmon(*arguments, preexec_fn=None, **options)
