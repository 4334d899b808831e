"""The journal as others read it: pages, commands, replays, while a server writes or when none does."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from ragmon.journal import opening, store
from ragmon.journal.faults import told
from ragmon.journal.held import Readable


class JournalReader(Readable):
    """Reads the journal of a state folder; used by one thread at a time.

    It sees what is on disk when it asks. Where a server sets a damaged journal aside, it goes on reading that one.

    Args:
        folder: The folder.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self.path = opening.existing(folder)
        with told(self.path):
            self._connection = store.reading(self.path)
            try:
                opening.check_version(self._connection, self.path)
            except BaseException:
                self._connection.close()
                raise

    def close(self) -> None:
        """Close the file; again is harmless."""
        self._connection.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self.close()


def open_readonly(folder: Path) -> JournalReader:
    """Read a journal beside whoever writes it.

    Raises:
        RagmonError: There is no journal, or one of another version.
        JournalError: It cannot be read.
    """
    return JournalReader(folder)
