"""Erasing here what somebody erased elsewhere: the traces that chunks name, in a thread of its own.

Which ones are due stands in the journal, so that a server that ends in between goes on when it begins again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event, Thread
from typing import Final

from ragmon.core.errors import RagmonError
from ragmon.server.journal import open_readonly
from ragmon.server.journal.erasure import erase_due
from ragmon.server.pipeline.writer import JournalWriter

LOOK: Final = 0.5
"""Seconds between two looks at whether something is to be erased."""
PAUSE: Final = 30.0
"""Seconds after which an erasure that failed is tried again."""
JOIN: Final = 30.0
_log = logging.getLogger("ragmon.server")


class DueErasures:
    """Erases what is due.

    Args:
        writer: The journal writer, which says when something is.
        folder: The folder of its journal.
    """

    def __init__(self, writer: JournalWriter, folder: Path) -> None:
        self._writer, self._folder = writer, folder
        self._stopping = Event()
        self._thread = Thread(target=self._work, name="ragmon-erasing", daemon=True)

    def start(self) -> None:
        """Start with what was due when the server ended."""
        self._writer.demanded.set()
        self._thread.start()

    def stop(self) -> None:
        """Wait for the erasure that is under way, and begin no other one."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(JOIN)

    def _work(self) -> None:
        pause = LOOK
        while not self._stopping.wait(pause):
            pause = LOOK
            if not self._writer.demanded.is_set():
                continue
            self._writer.demanded.clear()
            try:
                self._erase()
            except RagmonError as error:
                _log.warning("what was erased elsewhere is not erased here yet: %s", error)
                self._writer.demanded.set()
                pause = PAUSE

    def _erase(self) -> None:
        with open_readonly(self._folder) as journal:
            if not journal.is_erasure_due():
                return
        done = erase_due(self._folder)
        _log.info("erased, as elsewhere: %d records, %d labels", done.records, done.labels)
        if not done.wiped:
            _log.warning("somebody read the journal all the while: erased bytes may be on the disk still")
