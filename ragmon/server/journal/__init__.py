"""The journal: what was accepted, on disk, before anybody was told so.

Journal         one process writes, one thread at a time
open_readonly   others read beside it
forget          takes out what somebody asks to be forgotten
"""

from ragmon.server.journal.erasure import Erasure, erase
from ragmon.server.journal.errors import JournalError
from ragmon.server.journal.failures import Failure, Page, Query
from ragmon.server.journal.journal import Batch, Journal
from ragmon.server.journal.keys import Key
from ragmon.server.journal.quarantine import Quarantined
from ragmon.server.journal.reader import Body, Books, Checkpoint, JournalReader, Row, open_readonly
from ragmon.server.journal.retention import Limits

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
    "erase",
    "open_readonly",
]
