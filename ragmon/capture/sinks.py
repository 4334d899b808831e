"""Where records go. A sink is anything with `submit(record)`; it is called off the request path."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from ragmon.contract import Record, encode
from ragmon.errors import RagmonError


class Sink(Protocol):
    """One method: take a record."""

    def submit(self, record: Record) -> None:
        """Take a record; called from one thread, off the request path."""


class Tee:
    """Hands every record to several sinks, also where one of them fails.

    Args:
        sinks: In the order they get the record.
    """

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def submit(self, record: Record) -> None:
        """Take a record.

        Raises:
            Exception: What the first sink that failed raised, once all of them have had the record.
        """
        failed: Exception | None = None
        for sink in self._sinks:
            try:
                sink.submit(record)
            except Exception as error:  # noqa: BLE001 - one sink's trouble is not another's
                failed = failed or error
        if failed is not None:
            raise failed


class JsonlSink:
    """A trace log: one record a line, each line one write, so that several processes may share the file.

    Args:
        path: The file; it is appended to, its folder is made.
        redact: Takes out of a record what must not be written.

    Raises:
        RagmonError: The file cannot be opened.
    """

    def __init__(self, path: str | Path, redact: Callable[[Record], Record]) -> None:
        self._redact = redact
        self._torn = False
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115, PTH123 - held open for the life of the sink
        except OSError as error:
            raise RagmonError(
                f"{path}: cannot be written ({error.strerror})", hint="check folder and rights"
            ) from error

    def submit(self, record: Record) -> None:
        """Write a record.

        Raises:
            OSError: It was not written, or not whole; the next record starts on a line of its own.
        """
        line = encode(self._redact(record))
        if self._torn:
            line = b"\n" + line
        written = self._file.write(line)
        self._torn = self._torn if not written else written < len(line)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def close(self) -> None:
        """Close the file."""
        self._file.close()
