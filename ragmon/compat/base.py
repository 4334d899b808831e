"""Common parts of the compat modes: options, results, reading without validation, and the crashes of the scripts.

The published scripts read with the standard library's `json`: NaN is accepted, the last of two equal keys wins, blank
lines are skipped, nothing is validated. Other bad input ends them with a traceback. Here that becomes a
`PublishedScorerFailed` which names the rule that failed, the line, and the correction.
"""

from __future__ import annotations

import contextlib
import gzip
import importlib
import io
import json
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TextIO

from ragmon.core.errors import InputError

# Exceptions that end a script without validation.
_CRASHES: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# UnicodeDecodeError is a ValueError, a broken gzip header an OSError, a truncated gzip stream an EOFError.
_UNREADABLE: Final = (EOFError, OSError, UnicodeDecodeError, zlib.error)

Ask = Callable[[str, str, Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the published scorers; each mode reads those its scorer has.

    Args:
        k: seed-000's cutoff of recall@k (None: 5).
        gates: seed-000's gates, `precision=0.80,chr=0.75,under=0.05,over=0.10` (None: these).
        max_queries: seed-004's limit on queries, 0 for all.
        include_details: seed-004: the per-query shape of the code in place of the README's flat one.
        threshold: seed-001's success threshold (None: .5), seed-004's grounded threshold (None: .10).
        strict: seed-001: only a perfect ranking passes, everything else scores 0.
        skip_generation: seed-004: retrieval metrics only.
        ask: seed-001: calls a judge with input, expected output and contexts; returns `verdicts`, `reason` and
            `latency_ms`, or an `error`. None where verdicts are recorded.
    """

    k: int | None = None
    gates: str | None = None
    max_queries: int = 0
    include_details: bool = False
    threshold: float | None = None
    strict: bool = False
    skip_generation: bool = False
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The output of a compat mode: the published scorer's, with exit code 0, or an error with exit code 3."""

    text: str
    exit_code: int
    error: str | None = None  # the rule that failed and its file, then a line `hint: …`


class PublishedScorerFailed(InputError):  # noqa: N818 - it reports a crash that happened elsewhere
    """The published scorer would end with a traceback on this input."""


class Entry(NamedTuple):
    """A JSON value, and its file and line."""

    value: Any
    path: str
    line: int | None = None


@contextlib.contextmanager
def published_rule(at: Entry, rule: str, hint: str) -> Iterator[None]:
    """Turn a crash inside the block into an error that the published scorer crashes here."""
    try:
        yield
    except _CRASHES as crash:
        cause = f"{type(crash).__name__}: {crash}" if str(crash) else type(crash).__name__
        raise PublishedScorerFailed(
            f"the published scorer crashes here, {rule} ({cause})", path=at.path, line=at.line, hint=hint
        ) from crash


def read_lines(paths: Sequence[str]) -> Iterator[Entry]:
    """The JSON lines of the files in order; blank lines are skipped."""
    for path in paths:
        with _open(path) as stream:
            yield from _parse_lines(stream, path)


def read_document(path: str) -> Entry:
    """A file that is a single JSON value."""
    with _open(path) as stream:
        return _parse(stream.read(), path)


def read_items(paths: Sequence[str]) -> Iterator[Entry]:
    """The entries of gold files, each of which is a JSON array or JSONL."""
    for path in paths:
        with _open(path) as stream:
            text = stream.read()
        if text.lstrip().startswith("["):
            yield from array_items(_parse(text, path))
        else:
            yield from _parse_lines(io.StringIO(text), path)


def array_items(document: Entry) -> Iterator[Entry]:
    """The members of a JSON array, each with its number."""
    with published_rule(document, "it walks through the file as a list", "write one JSON array of objects"):
        members = list(document.value)
    for number, member in enumerate(members, start=1):
        yield Entry(member, f"{document.path} (item {number})")


@contextlib.contextmanager
def _open(path: str) -> Iterator[TextIO]:
    try:
        with _stream(path) as stream:
            yield stream
    except _UNREADABLE as error:
        raise PublishedScorerFailed(
            f"cannot be read: {error}", path=_display_name(path), hint="name a UTF-8 file of JSON, plain, .gz or .zst"
        ) from error


def _stream(path: str) -> TextIO:
    if path == "-":
        # A copy: closing it must not close the process's standard input.
        return io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8")
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8")
    if not path.endswith(".zst"):
        return open(path, encoding="utf-8")  # noqa: PTH123 - the caller closes it, and a path is a string here
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as error:
        hint = "pip install 'ragmon[zstd]', or unpack the file first"
        raise PublishedScorerFailed("reading .zst needs the package zstandard", path=path, hint=hint) from error
    try:
        with zstandard.open(path, "rb") as packed:
            return io.TextIOWrapper(io.BytesIO(packed.read()), encoding="utf-8")
    except zstandard.ZstdError as zstd_error:
        raise OSError(str(zstd_error)) from zstd_error


def _parse_lines(stream: TextIO, path: str) -> Iterator[Entry]:
    for number, line in enumerate(stream, start=1):
        text = line.strip()
        if text:
            yield _parse(text, path, number)


def _parse(text: str, path: str, line: int | None = None) -> Entry:
    try:
        return Entry(json.loads(text), _display_name(path), line)
    except (RecursionError, ValueError) as error:
        if line is None:
            line = getattr(error, "lineno", None)
        hint = "write JSON there, UTF-8 without a byte order mark"
        raise PublishedScorerFailed(f"not JSON: {error}", path=_display_name(path), line=line, hint=hint) from error


def _display_name(path: str) -> str:
    return "<stdin>" if path == "-" else path
