"""The journal: what was accepted, on disk, before anybody was told so.

Journal         one process writes, one thread at a time
open_readonly   others read beside it
forget          takes out what somebody asks to be forgotten
"""

from ragmon.journal.batch import Batch
from ragmon.journal.beside import JournalReader, open_readonly
from ragmon.journal.checkpoints import Limits
from ragmon.journal.failures import Failure, Page, Query
from ragmon.journal.faults import JournalError
from ragmon.journal.forgetting import Erasure, forget
from ragmon.journal.held import Body, Books, Checkpoint, Row
from ragmon.journal.journal import Journal
from ragmon.journal.keys import Key
from ragmon.journal.quarantine import Quarantined

__all__ = [
    "Batch",
    "Body",
    "Books",
    "Checkpoint",
    "Erasure",
    "Failure",
    "Journal",
    "JournalError",
    "JournalReader",
    "Key",
    "Limits",
    "Page",
    "Quarantined",
    "Query",
    "Row",
    "forget",
    "open_readonly",
]
