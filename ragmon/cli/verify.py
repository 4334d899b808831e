"""`ragmon verify`: is every record accounted for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from ragmon.cli.runs import config_option
from ragmon.config.load import load
from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.core.escaping import printable_line
from ragmon.export.state import Books
from ragmon.remote import NoAnswerError, place
from ragmon.server.journal import JournalError
from ragmon.verifying import Account, of_server

COLUMNS: Final = ("stage", "received", "scored", "ignored", "dropped", "duplicate", "pending", "residual")


@click.command()
@click.option("--url", metavar="URL", help="Ask the server whose admin port this is.")
@click.option("--state-dir", metavar="DIR", help="Read the journal in this folder, with or without its server.")
@click.option("--deep/--no-deep", default=None, help="Replay all rows of a journal. Default: up to 200,000 lines.")
@config_option
def verify(url: str | None, state_dir: str | None, deep: bool | None, config: str | None) -> int:
    """Say whether every record is accounted for.

    received = scored + ignored + dropped + duplicate + pending, stage by stage. Without --url and --state-dir the
    server on `[serve] admin` is asked; where nobody answers there, the journal in `[serve] state_dir` is read.

    A journal is looked at more closely: every row can be read, none is missing, and what the newest checkpoint and
    the rows after it say is what a replay of all rows says, under the same configuration.

    Exit codes: 0 it is, 1 it is not, 3 no server, no journal or bad configuration.
    """
    if url and state_dir:
        raise click.UsageError("--url asks a server and --state-dir reads a journal: give one of them")
    if url and deep is not None:
        raise click.UsageError("--deep looks at a journal: give --state-dir in place of --url")
    what, account = _account(load(config), url, state_dir, deep)
    click.echo(printable_line(what), err=True)
    for line in _lines(account):
        click.echo(printable_line(line))
    return 0 if account.holds else 1


def _account(settings: Settings, url: str | None, state_dir: str | None, deep: bool | None) -> tuple[str, Account]:
    """Who was asked, and what was found; without options whoever answers.

    Raises:
        RagmonError: There is neither a server nor a journal.
    """
    if url:
        return _server(url)
    if state_dir or deep:
        return _journal(settings, Path(state_dir or settings.serve.state_dir), deep)
    try:
        return _server(f"http://{settings.serve.admin}")
    except NoAnswerError as nobody:
        try:
            return _journal(settings, Path(settings.serve.state_dir), deep)
        except JournalError:
            raise
        except RagmonError as nothing:
            raise RagmonError(f"{nobody}, and {nothing}", hint="--url URL, or --state-dir DIR") from nothing


def _server(url: str) -> tuple[str, Account]:
    return f"the server on {place(url)}", of_server(url)


def _journal(settings: Settings, folder: Path, deep: bool | None) -> tuple[str, Account]:
    from ragmon.verifying.journal import of_journal  # noqa: PLC0415 - loads what the server needs

    return f"the journal in {folder}", of_journal(settings, folder, deep=deep)


def _lines(account: Account) -> list[str]:
    """What is printed."""
    lines = _table(account)
    for stage, books in sorted(account.books.items()):
        lines += _reasons(f"{stage} ignored", books.ignored) + _reasons(f"{stage} dropped", books.dropped)
    lines += _reasons("spans of no record", account.spans) + _reasons("lost by producers", account.lost)
    if account.missing:
        lines.append(f"missing: {account.missing}, which producers sent; some may be on their way")
    if account.forgotten:
        lines.append(f"note: records that were forgotten on request: {account.forgotten}")
    left = (
        f"records of {stage} that are unaccounted for: {account.books[stage].residual}" for stage in account.unbalanced
    )
    told = {"note": account.notes, "ok": account.found, "bad": (*account.wrong, *left)}
    return lines + [f"{how}: {text}" for how, texts in told.items() for text in texts]


def _table(account: Account) -> list[str]:
    """The books, a line a stage."""
    rows = [COLUMNS, *(_row(stage, books) for stage, books in sorted(account.books.items()))] if account.books else []
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for name, *numbers in rows:
        cells = (number.rjust(width) for number, width in zip(numbers, widths[1:], strict=True))
        lines.append("  ".join((name.ljust(widths[0]), *cells)))
    return lines


def _row(stage: str, books: Books) -> tuple[str, ...]:
    lost = sum(books.ignored.values()), sum(books.dropped.values())
    numbers = (books.received, books.scored, *lost, books.duplicate, books.pending, books.residual)
    return (stage, *map(str, numbers))


def _reasons(what: str, counts: Mapping[str, int]) -> list[str]:
    told = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()))
    return [f"{what}: {told}"] if told else []
