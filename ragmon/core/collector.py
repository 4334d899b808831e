"""Python's garbage collector, switched off where very many objects are made at once and none of them forms a cycle.

While their number grows, it looks at all of them again and again: a third of the time that a large gold set takes.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collector() -> Iterator[None]:
    """Switch garbage collection off for a while, in the whole process.

    >>> with without_collector():
    ...     gc.isenabled()
    False
    """
    gc_was_enabled = gc.isenabled()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if gc_was_enabled:
            gc.enable()
