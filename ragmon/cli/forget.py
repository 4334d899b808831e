"""`ragmon forget`: erase a trace, or all records with a tag or of a user, from a journal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import click

from ragmon.config.load import load
from ragmon.core.errors import RagmonError, printable_line, shorten
from ragmon.server.erasure import Erasure
from ragmon.server.erasure import erase as take_out

_TRACE: Final = re.compile(r"[0-9a-fA-F]{32}")


def forget(trace: str | None, tag: str | None, user: str | None, state_dir: str | None, config: str | None) -> int:
    """Take a trace, or all records with a tag or of a user, out of a server's journal and off the disk."""
    parsed_tag = _parse_target(trace, tag, user)
    folder = Path(state_dir or load(config).serve.state_dir)
    erasure = take_out(folder, trace=trace, tag=parsed_tag, user=user)
    for line in _report_lines(erasure):
        click.echo(printable_line(line))
    return 0


def _parse_target(trace: str | None, tag: str | None, user: str | None) -> tuple[str, str] | None:
    """Check that one of a trace, a tag and a user is given; return the name and value of the tag, else None.

    Raises:
        RagmonError: None or several are given, or one is malformed.
    """
    if [trace, tag, user].count(None) != 2:
        raise RagmonError("what is to be forgotten?", hint="--trace ID, --tag NAME=VALUE or --user NAME, one of them")
    if user is not None:
        if not user:
            raise RagmonError("--user names nobody", hint="--user ada, as the records have it")
        return None
    if trace is not None:
        if not _TRACE.fullmatch(trace):
            raise RagmonError(f"--trace is no trace id: {shorten(trace)}", hint="32 hex digits, without dashes")
        return None
    name, equals, value = (tag or "").partition("=")
    if not (name and equals):
        raise RagmonError(f"--tag names no tag and value: {shorten(tag)}", hint="--tag customer=42")
    return name, value


def _report_lines(erasure: Erasure) -> list[str]:
    """The lines to print: what was erased, and what remains."""
    erased = {"record": erasure.records, "label": erasure.labels, "waiting span": erasure.spans}
    if erasure.quarantined:  # seldom
        erased["quarantined request"] = erasure.quarantined
    lines = ["forgotten: " + ", ".join(f"{n} {kind}{'' if n == 1 else 's'}" for kind, n in erased.items())]
    if not any(erased.values()) and erasure.states:
        lines = ["forgotten: what saved states told of labels"]
    elif not any(erased.values()):
        lines = ["nothing was found"]
    if not erasure.wiped:
        lines.append("somebody read all the while, and it may be on the disk still: the same again wipes it")
    lines += [f"a damaged journal may hold it still; it can only be deleted: {path}" for path in erasure.unread]
    return [*lines, "stays: counts, which hold no text; keys and ids of traces, until they expire"]
