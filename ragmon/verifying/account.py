"""What came in and what became of it: received = scored + ignored + dropped + duplicate + pending, stage by stage."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ragmon.export.state import Books
from ragmon.remote import status


@dataclass(frozen=True)
class Account:
    """Whether everything is accounted for.

    Attributes:
        books: By stage.
        missing: Records that producers say they sent and that have not come; what is on its way counts among them.
        lost: Records that producers lost and know of, by reason.
        spans: Spans that belong to no record, by reason.
        forgotten: Records that somebody had forgotten.
        found: What was looked at and is as it should be.
        wrong: What is not.
        notes: What could not be looked at, and why.
    """

    books: Mapping[str, Books]
    missing: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    spans: Mapping[str, int] = field(default_factory=dict)
    forgotten: int = 0
    found: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def unbalanced(self) -> list[str]:
        """The stages whose books do not balance."""
        return [stage for stage, books in self.books.items() if books.residual]

    @property
    def holds(self) -> bool:
        """Whether everything is accounted for, and nothing is wrong."""
        return not (self.unbalanced or self.wrong)


def of_server(url: str) -> Account:
    """What a server that runs says of itself.

    Args:
        url: The address of its admin port.

    Raises:
        RagmonError: The address is none, or nobody answers there who is a `ragmon serve`.
    """
    told = status(url)
    return Account(
        books=told.books,
        missing=told.producers.missing,
        lost=told.producers.dropped,
        spans=told.spans_dropped,
        wrong=(f"the server takes nothing: {told.trouble}",) if told.trouble else (),
    )
