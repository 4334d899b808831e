"""What every compat mode shares: its options, its result, reading as leniently as the scripts read, and their crashes.

The published scripts read with the standard library's `json`: NaN is accepted, the last of two equal keys wins, blank
lines are skipped, nothing is validated. What they cannot digest ends them with a traceback. Here that becomes a
`PublishedScorerFailed` which names the rule that broke, the line it broke on, and what would be right.
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

# What a script that validates nothing dies of.
_CRASHES: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
# UnicodeDecodeError is a ValueError, a broken gzip header an OSError, a truncated gzip stream an EOFError.
_UNREADABLE: Final = (EOFError, OSError, UnicodeDecodeError, zlib.error)


Ask = Callable[[str, str, Sequence[str]], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Options:
    """The published scorers' own options; each mode reads those its scorer has.

    Args:
        k: seed-000's cutoff of recall@k (None: 5).
        gates: seed-000's gates, `precision=0.80,chr=0.75,under=0.05,over=0.10` (None: these).
        max_queries: seed-004's limit on queries, 0 for all.
        include_details: seed-004: the per-query shape of the code in place of the README's flat one.
        threshold: seed-001's success threshold (None: .5), seed-004's grounded threshold (None: .10).
        strict: seed-001: only a perfect ranking passes, everything else scores 0.
        skip_generation: seed-004: retrieval metrics only.
        ask: seed-001: asks a judge about input, expected output and contexts; gives `verdicts`, `reason` and
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
    r"""What a compat mode hands to the command line.

    Args:
        text: The published scorer's standard output, final newline included; empty when it crashed.
        exit_code: 0, or 3 when the published scorer crashes on this input.
        error: One line saying what crashed and where, then `\nhint: ` and what would be right; None at exit 0.
    """

    text: str
    exit_code: int
    error: str | None = None


class PublishedScorerFailed(InputError):  # noqa: N818 - it reports a crash that happened elsewhere
    """The published scorer would end with a traceback on this input; the message says why in one line."""


class Entry(NamedTuple):
    """One JSON value and the place it came from."""

    value: Any
    path: str
    line: int | None = None


@contextlib.contextmanager
def published_rule(at: Entry, rule: str, hint: str) -> Iterator[None]:
    """Turn a crash inside the block into the plain statement that the published scorer crashes here.

    Args:
        at: The input the rule was applied to.
        rule: What the published scorer does with it, as a clause.
        hint: What would be right.

    Raises:
        PublishedScorerFailed: Whenever the block ends the way an unguarded script ends.
    """
    try:
        yield
    except _CRASHES as crash:
        cause = f"{type(crash).__name__}: {crash}" if str(crash) else type(crash).__name__
        raise PublishedScorerFailed(
            f"the published scorer crashes here, {rule} ({cause})", path=at.path, line=at.line, hint=hint
        ) from crash


def read_lines(paths: Sequence[str]) -> Iterator[Entry]:
    """Every JSON line of the files in order; blank lines are skipped.

    Args:
        paths: JSONL files, plain, `.gz` or `.zst`; `-` is standard input.

    Raises:
        PublishedScorerFailed: A file cannot be read or a line is not JSON.
    """
    for path in paths:
        with _opened(path) as stream:
            yield from _parsed_lines(stream, path)


def read_document(path: str) -> Entry:
    """A file that is one JSON value.

    Raises:
        PublishedScorerFailed: The file cannot be read or is not JSON.
    """
    with _opened(path) as stream:
        return _parsed(stream.read(), path)


def read_items(paths: Sequence[str]) -> Iterator[Entry]:
    """The entries of gold files that are JSON arrays or JSONL, whichever each one is.

    Raises:
        PublishedScorerFailed: A file cannot be read or is not JSON.
    """
    for path in paths:
        with _opened(path) as stream:
            text = stream.read()
        if text.lstrip().startswith("["):
            yield from array_items(_parsed(text, path))
        else:
            yield from _parsed_lines(io.StringIO(text), path)


def array_items(document: Entry) -> Iterator[Entry]:
    """The members of a JSON array, each with its number as its place."""
    with published_rule(document, "it walks through the file as a list", "write one JSON array of objects"):
        members = list(document.value)
    for number, member in enumerate(members, start=1):
        yield Entry(member, f"{document.path} (item {number})")


@contextlib.contextmanager
def _opened(path: str) -> Iterator[TextIO]:
    try:
        with _stream(path) as stream:
            yield stream
    except _UNREADABLE as trouble:
        raise PublishedScorerFailed(
            f"cannot be read: {trouble}", path=_shown(path), hint="name a UTF-8 file of JSON, plain, .gz or .zst"
        ) from trouble


def _stream(path: str) -> TextIO:
    if path == "-":
        # A copy: closing it must not close the process's standard input.
        return io.TextIOWrapper(io.BytesIO(sys.stdin.buffer.read()), encoding="utf-8")
    if path.endswith(".gz"):
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8")
    if path.endswith(".zst"):
        return _zstd_stream(path)
    return open(path, encoding="utf-8")  # noqa: PTH123 - the caller closes it, and a path is a string here


def _zstd_stream(path: str) -> TextIO:
    try:
        zstandard = importlib.import_module("zstandard")
    except ImportError as absent:
        hint = "pip install 'ragmon[zstd]', or unpack the file first"
        raise PublishedScorerFailed("reading .zst needs the package zstandard", path=path, hint=hint) from absent
    try:
        with zstandard.open(path, "rb") as packed:
            return io.TextIOWrapper(io.BytesIO(packed.read()), encoding="utf-8")
    except zstandard.ZstdError as trouble:
        raise OSError(str(trouble)) from trouble


def _parsed_lines(stream: TextIO, path: str) -> Iterator[Entry]:
    for number, line in enumerate(stream, start=1):
        text = line.strip()
        if text:
            yield _parsed(text, path, number)


def _parsed(text: str, path: str, line: int | None = None) -> Entry:
    try:
        return Entry(json.loads(text), _shown(path), line)
    except (RecursionError, ValueError) as trouble:
        if line is None:
            line = getattr(trouble, "lineno", None)
        hint = "write JSON there, UTF-8 without a byte order mark"
        raise PublishedScorerFailed(f"not JSON: {trouble}", path=_shown(path), line=line, hint=hint) from trouble


def _shown(path: str) -> str:
    return "<stdin>" if path == "-" else path
