"""Traces of probes as lines: in the order of the questions, whatever the order of the answers."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import BinaryIO, Final, Self

from ragmon.core.errors import RagmonError
from ragmon.core.record import Record, encode

STDOUT: Final = "-"


class InOrder:
    """Hands records on in the order of their places.

    Args:
        take: Given each.

    Attributes:
        placed: Places it is known what became of.
    """

    def __init__(self, take: Callable[[Record], None]) -> None:
        self.placed = 0
        self._take = take
        self._next = 0
        self._held: dict[int, Record | None] = {}

    def put(self, place: int, record: Record | None) -> None:
        """Say what became of a place; None for nothing."""
        self.placed += 1
        self._held[place] = record
        while self._next in self._held:
            self._hand_on(self._held.pop(self._next))
            self._next += 1

    def close(self) -> None:
        """Hand on what stands behind places of which nothing is known."""
        for place in sorted(self._held):
            self._hand_on(self._held.pop(place))

    def _hand_on(self, record: Record | None) -> None:
        if record is not None:
            self._take(record)


class Lines:
    """A file of traces, written anew.

    Args:
        output: The file; None or `-` for standard output.
        redact: Takes out of a record what must not be written; None where that was done.

    Raises:
        RagmonError: It cannot be written.
    """

    def __init__(self, output: str | None, redact: Callable[[Record], Record] | None = None) -> None:
        self._redact = redact
        self._name = output or STDOUT
        self._is_stdout = self._name == STDOUT
        try:
            # Held open for as long as there are records to come.
            self._file: BinaryIO = sys.stdout.buffer if self._is_stdout else open(self._name, "wb")  # noqa: SIM115, PTH123
        except OSError as error:
            raise self._failed(error) from error

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            RagmonError: There is no room.
        """
        try:
            self._file.write(encode(record if self._redact is None else self._redact(record)))
            self._file.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> RagmonError:
        return RagmonError(f"{self._name}: cannot be written ({error.strerror})", hint="check space and rights")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_stdout:
            self._file.close()
