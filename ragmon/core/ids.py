"""Ids of documents: what two ids of one document may differ in, and which settings make them equal.

An id is read as folders, a stem, a file suffix and chunks: `https://h/docs/Page-007.pdf#0` has the folders `h` and
`docs`, the stem `page-7`, the suffix `.pdf` and the chunk `0`. Two ids are of one form of a document or another where
their stems are equal and of each other part one has no more than the other has as well: `page-7#0` and `page-7#1` are
two documents. Ids are untrusted: the time of every function grows no faster than the length of its text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple
from urllib.parse import unquote

from ragmon.core.text import fold_characters

IdForm = Literal["exact", "casefold", "prefix", "path"]
"""What ids may differ in: nothing; case, Unicode forms, white space, leading zeros; file suffix and chunk; folders."""
EXACT: Final[IdForm] = "exact"

LONGEST: Final = 200
"""Characters of an id that has parts; a longer one is no name that people write in two ways."""
_KNOWN: Final = 65_536
_ZEROS: Final = re.compile(r"(?<![\d.])0+(?=\d)")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:www\.)?", re.IGNORECASE)
_FOLDER: Final = re.compile(r"[/\\]+|:+")
_SUFFIX: Final = re.compile(r"\.[a-z][a-z0-9]{0,4}\Z", re.IGNORECASE)
_MARKED: Final = re.compile(r"[#?][^#?]+")  # `#0`, `#page=3`, `?page=3`
_WORDS: Final = "(?:chunk|passage|split|segment|snippet|node|block)"
_CHUNK: Final = re.compile(
    rf"[\s_.:|@~-]:?{_WORDS}s?[\s_.:=-]?\d+(?:-\d+)?\Z"  # `_chunk_3`, `::chunk-3`
    rf"|/{_WORDS}s?/\d+\Z"  # `/chunks/3`
    r"|[\s_.-](?:part|pages?|p|sections?|para|paragraphs?)[\s_.=-]?\d+\Z"  # `_part_3`, `_p3`
    r"|::?\d+(?:-\d+)?\Z|[|@~]\d+\Z|\s?\(\d+\)\Z|\[\d+\]\Z"  # `:0`, `::0`, `:0-512`, `|0`, ` (0)`, `[0]`
    r"|(?:\d|\.[a-z][a-z0-9]{0,4})(?P<numbers>(?:[_-]\d{1,12}){1,4})\Z",  # `_0` of `page-7_0` and of `page.pdf_0`
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"[_-]\d+")
_NOT_SAID: Final = re.compile(rf"[^\w-]|_|\A-|{_WORDS}s?", re.IGNORECASE)  # `#0` and `_chunk_0` are one chunk


class IdParts(NamedTuple):
    """The parts of an id."""

    folders: tuple[str, ...]
    stem: str
    suffix: str
    chunks: tuple[str, ...]


def folded(text: str) -> str:
    """An id, or several with white space between them, as `casefold` compares them.

    >>> folded("Page-007 "), folded("Geb%C3%BChren")
    ('page-7', 'gebühren')
    """
    text = unquote(text) if "%" in text else text
    text = " ".join(fold_characters(text).split())
    return _ZEROS.sub("", text) if "0" in text else text


@lru_cache(_KNOWN)
def parts_of(name: str) -> IdParts:
    """The parts of an id, as it is written.

    >>> parts_of("https://h/docs/page-7.pdf#0")
    IdParts(folders=('h', 'docs'), stem='page-7', suffix='.pdf', chunks=('0',))
    >>> parts_of("page-7_chunk_3")
    IdParts(folders=(), stem='page-7', suffix='', chunks=('3',))
    """
    if len(name) > LONGEST:
        return IdParts((), name, "", ())
    scheme = _SCHEME.match(name)
    rest = name[scheme.end() :] if scheme is not None else name
    mark = min((at for sign in "#?" if (at := rest.find(sign)) >= 0), default=-1)
    chunks: list[str] = []
    if mark > 0 and (found := _MARKED.findall(rest, mark)):
        rest, chunks = rest[:mark], found
    suffix = ""
    rest = rest.rstrip("/\\")
    while True:
        if (chunk := _CHUNK.search(rest)) is not None and chunk.start() > 0:
            numbers = chunk["numbers"]
            chunks[:0] = [chunk[0]] if numbers is None else _NUMBER.findall(numbers)
            rest = rest[: chunk.start() if numbers is None else chunk.start("numbers")]
        elif not suffix and (found_suffix := _SUFFIX.search(rest)) is not None and found_suffix.start() > 0:
            suffix, rest = found_suffix[0], rest[: found_suffix.start()]
        else:
            break
    *folders, stem = [step for step in _FOLDER.split(rest) if step not in ("", ".")] or [name]
    return IdParts(tuple(folders), stem, suffix, tuple(_NOT_SAID.sub("", chunk) or chunk for chunk in chunks))


@lru_cache(_KNOWN)
def folded_parts(name: str) -> IdParts:
    """The parts of a folded id."""
    return parts_of(folded(name))


def needed(name: str, other: str) -> frozenset[IdForm] | None:
    """What two ids must be allowed to differ in to be ids of one document; None where they are of two documents.

    >>> sorted(needed("page-7#0", "docs/Page-007"))
    ['casefold', 'path', 'prefix']
    >>> needed("page-7#0", "page-7#1") is needed("page-70", "page-7") is None
    True
    """
    if name == other:
        return frozenset()
    a, b = folded_parts(name), folded_parts(other)
    if not _of_one_document(a, b):
        return None
    forms: set[IdForm] = set()
    if not _of_one_document(parts_of(name), parts_of(other)):
        forms.add("casefold")
    if a.folders != b.folders:
        forms.add("path")
    if (a.suffix, a.chunks) != (b.suffix, b.chunks):
        forms.add("prefix")
    # Equal parts may be written in two ways: `page-7#0` and `page-7_chunk_0`, `http://h/page-7` and `https://h/page-7/`.
    return frozenset(forms or ("prefix" if a.chunks else "path",))


def _of_one_document(a: IdParts, b: IdParts) -> bool:
    if a.stem != b.stem or (a.suffix and b.suffix and a.suffix != b.suffix):
        return False
    chunks, folders = min(len(a.chunks), len(b.chunks)), min(len(a.folders), len(b.folders))
    same_chunks = a.chunks[:chunks] == b.chunks[:chunks]
    return same_chunks and a.folders[len(a.folders) - folders :] == b.folders[len(b.folders) - folders :]
