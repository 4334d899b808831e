"""The pages of a journal without its server: the state at its last row, read only, at a time that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

from ragmon.config.settings import Settings
from ragmon.core.errors import RagmonError
from ragmon.export.status import MonitorSnapshot, ServerFindings, status
from ragmon.monitor.admin import AdminView
from ragmon.monitor.engine import Engine, MonitorHistory
from ragmon.server.journal.files import journal_file
from ragmon.server.journal.reader import open_readonly
from ragmon.server.pipeline.clock import Clock
from ragmon.server.pipeline.recovery import recover
from ragmon.server.pipeline.state import ServerState
from ragmon.server.queries import QueryService


class JournalView:
    """The state of a journal at its last row.

    Args:
        settings: The configuration; another one than the server's gives what it would have shown.
        folder: The folder of the journal.

    Attributes:
        lock: What the state is locked by.
        server_state: The state.
        clock: Stands still at the arrival of the last row.
        folder: As given.
        queries: Answers queries about it.

    Raises:
        RagmonError: The folder holds no journal, or it has no row.
        JournalError: The journal cannot be read.
    """

    def __init__(self, settings: Settings, folder: Path) -> None:
        with open_readonly(folder) as journal:
            self.server_state: ServerState = recover(settings, journal)
            (row, newest), oldest = journal.last(), journal.oldest()
        if oldest is None:
            hint = "the state folder of a `ragmon serve` that received data"
            raise RagmonError(f"{folder} holds no row yet", hint=hint)
        self.folder, self.lock = folder, Lock()
        self.clock = Clock(wall=lambda: newest, passed=lambda: 0.0)
        self.queries = QueryService(self, folder)
        self._oldest, self._row = oldest, row
        self.server_state.advance(newest)

    @contextmanager
    def locked(self) -> Iterator[tuple[Engine, float]]:
        """The engine and the time."""
        with self.lock:
            yield self.server_state.engine, self.clock.now()

    def snapshot(self) -> MonitorSnapshot:
        """The state for exporters."""
        with self.lock:
            return self.server_state.monitor_snapshot(self.clock.now(), 0)

    def status(self, current: MonitorSnapshot) -> dict[str, Any]:
        """The data of `/api/status`.

        Args:
            current: A snapshot.
        """
        settings, size = self.server_state.engine.settings, journal_file(self.folder).stat().st_size
        journal = {
            "bytes": size,
            "limit": int(settings.serve.max_size),
            "row": self._row,
            "oldest": self._oldest,
            "newest": self.clock.now(),
            "checkpoint": None,
            "resets": 0,
        }
        return status(current, settings, self._oldest, ServerFindings(journal=journal))

    def view(self) -> AdminView:
        """What an admin port shows of it."""
        settings = self.server_state.engine.settings
        return AdminView(
            self.snapshot,
            lambda: None,
            self.status,
            history=MonitorHistory(self.locked),
            settings=lambda: settings,
            diagnose=self.queries.diagnose,
        )
