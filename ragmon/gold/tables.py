"""Gold items of rows: of tables, of DataFrames, and of JSON with the names of other programs, such as Ragas.

Rows in the shapes of gold files are read strictly, by `ragmon.gold.schema`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from ragmon.core.errors import GoldError, InputError
from ragmon.core.gold_item import GoldItem, Match
from ragmon.gold.schema import read_item
from ragmon.gold.strict_json import JsonLocation
from ragmon.tabular.cells import CellError
from ragmon.tabular.columns import EMPTY_REFERENCE, USUAL, TableOptions
from ragmon.tabular.files import RejectRow, TableRows
from ragmon.tabular.gold import (
    TRACES_AS_GOLD,
    TRACES_HINT,
    MissingReferenceError,
    check_gold,
    gold_fields,
    has_reference,
    is_trace,
)

OWN_MEMBERS: Final = frozenset(
    ("answerable", "gold_claim", "gold_claim_substr", "gold_citations", "gold_ids", "gold_contexts", "relevant")
)
"""Members that make an object a row of a gold file."""


@dataclass
class RowReader:
    """Reads rows as gold items.

    Args:
        match: How gold texts are compared with contexts.
        options: How tables are read, and which columns or members hold which field.
        empty_reference: What a row means that names no answer (`ragmon.tabular.gold.gold_fields`).

    Attributes:
        skipped: How many rows were left out.
    """

    match: Match = "exact"
    options: TableOptions = USUAL
    empty_reference: str | None = None
    skipped: int = 0

    def objects(self, rows: Iterable[tuple[JsonLocation, Any]]) -> Iterator[tuple[JsonLocation, GoldItem]]:
        """The items of JSON objects: rows of gold files, or rows with the usual names of other programs.

        Raises:
            GoldError: An object is no gold item.
        """
        for place, raw in rows:
            item = self._object(place, raw)
            if item is not None:
                yield place, item

    def _object(self, place: JsonLocation, raw: Any) -> GoldItem | None:
        if isinstance(raw, dict):
            if self.options.columns or (OWN_MEMBERS.isdisjoint(raw) and has_reference(raw)):
                return self._row(place, raw)
            if is_trace(raw):
                raise place.error(TRACES_AS_GOLD, hint=TRACES_HINT)
        return read_item(place, raw, self.match)

    def table(self, table: TableRows, path: str) -> Iterator[tuple[JsonLocation, GoldItem]]:
        """The items of a table.

        Args:
            table: The table.
            path: The file, for messages.

        Raises:
            GoldError: Its columns are no gold, or a row is no gold item.
        """
        try:
            rows = list(table.rows)
            check_gold(table.columns, rows[0][1] if rows else {}, self.options, path)
        except GoldError:
            raise
        except InputError as error:
            message = str(error).removeprefix(f"{error.path}: ")
            raise GoldError(message, path=error.path, line=error.line, hint=error.hint) from None
        for number, row in rows:
            place = JsonLocation(path, number)
            item = self._row(place, row)
            if item is not None:
                yield place, item

    def _row(self, place: JsonLocation, row: Mapping[str, Any]) -> GoldItem | None:
        try:
            fields = gold_fields(row, self.options, self.empty_reference)
        except MissingReferenceError as error:
            hint = f"ragmon gold from-table {place.path} --empty-reference {', or '.join(EMPTY_REFERENCE)}"
            raise place.error(str(error), hint=hint) from None
        except (CellError, InputError) as error:
            hint = error.hint if isinstance(error, InputError) else "mend the row, or map another column"
            raise place.error(str(error), hint=hint) from None
        if fields is None:
            self.skipped += 1
            return None
        return read_item(place, fields, self.match)


def as_line(item: GoldItem) -> dict[str, Any]:
    """An item as a line of a gold file holds it.

    >>> as_line(GoldItem("a", "Why?", answerable=False))
    {'qid': 'a', 'question': 'Why?', 'answerable': False}
    """
    optional = {
        "gold_claim": item.gold_claim,
        "gold_claim_substr": item.claim_substrings,
        "gold_citations": item.citations,
        "gold_contexts": item.contexts,
        "tags": item.tags,
        "paraphrases": item.paraphrases,
        "negatives": item.negatives,
        "constraints": item.constraints,
    }
    given = {name: list(value) if isinstance(value, tuple) else value for name, value in optional.items() if value}
    return {"qid": item.qid, "question": item.question, "answerable": item.answerable, **given}


def refuse_row(path: str) -> RejectRow:
    """Raises the error of a row that cannot be read: a gold file is accepted as a whole or not at all."""

    def refuse(line: int, reason: str, detail: str, _lost: int) -> NoReturn:
        raise JsonLocation(path, line).error(f"{reason}: {detail}", hint="mend the row: all are accepted or none")

    return refuse
