"""Where records go. A sink is anything with `submit(record)`; it is called off the request path."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from ragmon.capture.redact import Content, strip
from ragmon.contract import Record, encode
from ragmon.errors import RagmonError
from ragmon.gold import GoldIndex
from ragmon.reader import FactReader


class Sink(Protocol):
    """One method: take a record."""

    def submit(self, record: Record) -> None:
        """Take a record; called from one thread, off the request path."""


class Tee:
    """Hands every record to several sinks."""

    def __init__(self, *sinks: Sink) -> None:
        self._sinks = sinks

    def submit(self, record: Record) -> None:
        """Take a record."""
        for sink in self._sinks:
            sink.submit(record)


class JsonlSink:
    """A trace log: one record a line, as much content as the policy allows.

    Args:
        path: The file; it is appended to, its folder is made.
        content: What of user traffic is written.
        probe_content: What of probes is written; gold questions are not user data.
        gold: Lets content `none` still carry claim facts.
        facts: How claim facts are decided.

    Raises:
        RagmonError: The file cannot be opened.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        content: Content = "none",
        probe_content: Content = "full",
        gold: GoldIndex | None = None,
        facts: FactReader | None = None,
    ) -> None:
        self._content, self._probe_content = content, probe_content
        self._gold, self._facts = gold, facts or FactReader()
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            self._file = open(path, "ab")  # noqa: SIM115, PTH123 - held open for the life of the sink
        except OSError as error:
            raise RagmonError(
                f"{path}: cannot be written ({error.strerror})", hint="check folder and rights"
            ) from error

    def submit(self, record: Record) -> None:
        """Write a record."""
        content = self._probe_content if record.source == "probe" else self._content
        self._file.write(encode(strip(record, content, self._gold, self._facts)))

    def close(self) -> None:
        """Write out what is buffered and close the file."""
        self._file.close()
