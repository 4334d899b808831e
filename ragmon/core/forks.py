"""What a forked child does with a greenlet of its parent, and how it is spared an import of another thread.

A fork copies no threads, but gevent makes greenlets of threads, and these go on in the child. There the greenlet would
finish what the parent finishes as well: deliver a record again, or answer a request that came to the parent. Python has
forgotten it as a thread, so its end would be an error too. It therefore sleeps for as long as the child lives.

Source: gevent's documentation of `gevent.os.fork`.
"""

from __future__ import annotations

import os
import threading
from typing import Final

importing: Final = threading.RLock()
"""Held while a thread imports modules: a child forked meanwhile would wait for ever for the end of that import."""
os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)

_sleeping: Final[list[threading.Event]] = []
"""Keeps the events, and so the greenlets that wait for them: one that is collected would run its `finally` clauses."""


def sleep_if_inherited(process: int) -> None:
    """Let the current thread sleep for ever if it runs in another process than the one that started it.

    Args:
        process: The id of the process that started the thread.
    """
    if os.getpid() != process:
        never = threading.Event()  # made here: the module may be imported before gevent replaces the class
        _sleeping.append(never)
        while True:
            never.wait()
