"""How far a long read is, on stderr."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn


@contextmanager
def bar(size: int) -> Iterator[Callable[[int], None]]:
    """A progress bar that is gone when the work is done.

    Args:
        size: Bytes in all.

    Yields:
        To be told how many bytes have been read.
    """
    columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("scoring", total=size)
        yield lambda done: shown.update(task, completed=done)
