"""What is done now and then: checkpoints, forgetting what is old, a new journal where the old one broke."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager
from time import monotonic
from typing import Any, Final

from ragmon.journal import Journal, JournalError
from ragmon.monitor.log import complain
from ragmon.server.keeping.clock import Clock
from ragmon.server.keeping.ledger import Ledger

EVERY: Final = 60.0
"""Seconds between two checkpoints, and between two looks at what is old."""
RECORDS: Final = 20_000
"""Records after which there is a checkpoint in any case: to score them again takes about half a second."""
SLICES: Final = 8
"""Transactions in which rows are deleted between two rows, at most: together they delete more than a row writes."""
PARTS: Final = 8
"""Into how many parts a journal is divided by checkpoints: up to one of them the oldest rows are deleted."""
LEAST: Final = 8 << 20
"""Bytes of a journal below which checkpoints are not made more often: each takes time, and some room itself."""
PAUSE: Final = 5.0
"""Seconds after which a checkpoint that could not be written is tried again: it takes time to make one."""
_log = logging.getLogger("ragmon.server")


class Housekeeping:
    """Keeps a journal in order.

    Args:
        journal: The journal.
        clock: The time.
        lock: Held while what was counted is read.

    Attributes:
        resets: How often a damaged journal was set aside.
    """

    def __init__(self, journal: Journal, clock: Clock, lock: AbstractContextManager[Any]) -> None:
        self.resets = int(journal.set_aside is not None)
        self._journal = journal
        self._clock = clock
        self._lock = lock
        self._due = monotonic() + EVERY
        self._expiring = False
        self._again = 0.0
        self._saved = (0, 0)
        self._saved_upto = journal.upto

    def keep(self, ledger: Ledger, *, ending: bool = False) -> bool:
        """Do what is due; returns whether a minute has passed and old things may be gone.

        Args:
            ledger: What was counted.
            ending: The server is being stopped.

        Raises:
            JournalError: The journal cannot be written.
        """
        now = monotonic()
        due = now >= self._due
        many = self._much_came(ledger) and now >= self._again
        if due or many or ending:
            self._again = now + PAUSE
            self._due = self._again if due else self._due
            self.save(ledger)
            self._again = now
        if due:
            self._due = now + EVERY
            self._journal.wipe_log()  # users' words are in it, of requests that wait for nothing any more
        if (due or self._expiring) and self._clock.calm:
            self._expiring = self._journal.expire()
        self._make_room()
        return due

    def _much_came(self, ledger: Ledger) -> bool:
        """Whether so much came since the last checkpoint that another one is due."""
        written = self._journal.upto - self._saved_upto
        return ledger.live.scorer.scored - self._saved[1] >= RECORDS or written * PARTS >= max(
            self._journal.limits.size, LEAST
        )

    def _make_room(self) -> None:
        """Delete the oldest rows while the journal is too large, whatever the clock says."""
        for _ in range(SLICES):
            if not self._journal.make_room():
                return

    def save(self, ledger: Ledger) -> None:
        """Write a checkpoint, if anything came since the last one."""
        if ledger.seq == self._saved[0]:
            return
        with self._journal.begin() as batch:
            forgotten = batch.forgotten()  # asked where nobody can forget more before it is saved
            with self._lock:
                ledger.forget(forgotten)
                data = ledger.dump()
            batch.fail(ledger.failures)  # nobody finds them again: the rows they are in are counted
            batch.save(ledger.seq, self._clock.now(), data)
        ledger.failures.clear()
        self._saved = (ledger.seq, ledger.live.scorer.scored)
        self._saved_upto = self._journal.upto

    def secure(self, ledger: Ledger) -> bytes:
        """Write a checkpoint before another configuration holds, and return what was counted.

        Rows that were scored by one gold set are not to be scored again by another, should the server be killed.
        """
        try:
            self.save(ledger)
        except JournalError as error:
            complain(f"no checkpoint before another configuration ({error.reason})", error)
        return ledger.dump()

    def begin_again(self, ledger: Ledger) -> None:
        """Set a damaged journal aside, and go on in a new one with what is known."""
        self._saved, self._due, self._again = (-1, 0), 0.0, 0.0  # should it not succeed now, as soon as there is room
        self.resets += 1
        try:
            aside = self._journal.set_aside_and_begin_again()
            _log.error("the journal is damaged and was set aside: %s", aside)
            self.save(ledger)
        except JournalError as error:
            complain(f"no new journal can be begun ({error.reason})", error)
