"""Options of commands that read tables: which column is which, the encoding, and what separates entries of a list."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import wraps
from typing import Any, Final, TypeVar

import click

from ragmon.core.errors import InputError
from ragmon.ingest.tables import TableOptions, parse_map

_Command = TypeVar("_Command", bound=Callable[..., Any])
_ESCAPES: Final = {"\\n": "\n", "\\t": "\t"}


def table_options(fields: Collection[str], *, of: str) -> Callable[[_Command], Callable[..., Any]]:
    """Add `--map`, `--encoding`, `--list-separator` and `--sheet`; the command gets them as `tables`.

    Args:
        fields: The fields that can be mapped, beside tags.
        of: What is read, for the help text.
    """

    def parse(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
        columns: dict[str, str] = {}
        for text in values:
            pairs = parse_map(text, fields)
            if twice := columns.keys() & pairs.keys():
                raise InputError("a field is mapped twice", value=min(twice), hint="give it one column")
            columns |= pairs
        return columns

    def add(command: _Command) -> Callable[..., Any]:
        @wraps(command)
        def with_tables(
            *args: Any,
            mapping: dict[str, str],
            encoding: str | None,
            list_separator: str | None,
            sheet: str | None,
            **rest: Any,
        ) -> Any:
            for escape, char in _ESCAPES.items():
                list_separator = list_separator and list_separator.replace(escape, char)
            return command(*args, tables=TableOptions(mapping, encoding, list_separator, sheet), **rest)

        mapped = f"The columns or JSON members of {of}, where their names are not usual ones. Repeatable."
        for option in (
            click.option("--sheet", metavar="NAME", help="The sheet of a workbook. Default: the first."),
            click.option(
                "--list-separator",
                metavar="TEXT",
                help="What separates the entries of a list in one cell, such as `,` or `\\n`.",
            ),
            click.option("--encoding", metavar="NAME", help="Of CSV and TSV. Default: UTF-8."),
            click.option("--map", "mapping", metavar="FIELD=COLUMN,…", multiple=True, callback=parse, help=mapped),
        ):
            option(with_tables)
        return with_tables

    return add
