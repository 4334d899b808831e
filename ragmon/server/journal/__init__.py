"""The journal: a SQLite file that holds every accepted batch before the request is acknowledged.

Journal         writes the journal; one process, one thread at a time
open_readonly   reads the journal while another process may write it
erase           erases traces, or records with a tag, on request
"""

from ragmon.server.journal.erasure import Erasure, erase
from ragmon.server.journal.failures import Failure, FailurePage, FailureQuery
from ragmon.server.journal.journal import Journal, JournalBatch
from ragmon.server.journal.keys import Key
from ragmon.server.journal.quarantine import QuarantinedRequest
from ragmon.server.journal.reader import Checkpoint, JournalReader, JournalRow, PendingRequest, open_readonly
from ragmon.server.journal.retention import RetentionLimits
from ragmon.server.journal.store import JournalError

__all__ = [
    "Checkpoint",
    "Erasure",
    "Failure",
    "FailurePage",
    "FailureQuery",
    "Journal",
    "JournalBatch",
    "JournalError",
    "JournalReader",
    "JournalRow",
    "Key",
    "PendingRequest",
    "QuarantinedRequest",
    "RetentionLimits",
    "erase",
    "open_readonly",
]
