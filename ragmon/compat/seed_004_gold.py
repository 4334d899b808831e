"""The benchmark directory of seed-004: queries, one relevant section a query, reference answers, maybe the corpus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragmon.compat.base import Entry, PublishedScorerFailed, published_rule, read_document


@dataclass(frozen=True, slots=True)
class Query:
    """One question and the section that answers it.

    Args:
        query_id: Its key in `queries.json`.
        text: The question.
        doc_id: The document of the relevant section.
        section_id: The section's number in it.
    """

    query_id: str
    text: Any
    doc_id: Any
    section_id: Any

    def is_answered_by(self, chunk_id: Any) -> bool:
        """Whether a chunk `{doc}_{section}_{i}` is one of the relevant section."""
        if not isinstance(chunk_id, str):
            return False
        section, _, index = chunk_id.rpartition("_")
        return index.isdecimal() and section == f"{self.doc_id}_{self.section_id}"


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The usable queries in the order of `queries.json`, and the reference answers by query id."""

    queries: list[Query]
    answers: dict[str, Any]


def load_benchmark(directory: str) -> Benchmark:
    """Read a benchmark directory and drop the queries without a usable qrel.

    Raises:
        PublishedScorerFailed: A file is absent or not JSON, or an entry lacks what the published loader reads.
    """
    root = Path(directory)
    if not root.is_dir():
        hint = "name the directory that holds queries.json, qrels.json and answers.json"
        raise PublishedScorerFailed("not a directory", path=directory, hint=hint)
    texts = {key: text for key, (text,) in _fields(root / "queries.json", ("query",))}
    sections = dict(_fields(root / "qrels.json", ("doc_id", "section_id")))
    answers = read_document(str(root / "answers.json"))
    with published_rule(answers, "it looks reference answers up by query id", "one JSON object, query id: answer"):
        by_id = dict(answers.value.items())
    corpus = _corpus_sections(root / "corpus")
    usable = {key: section for key, section in sections.items() if corpus is None or section in corpus}
    queries = [Query(key, text, *usable[key]) for key, text in texts.items() if key in usable]
    return Benchmark(queries, by_id)


def _fields(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    document = read_document(str(path))
    with published_rule(document, "it walks through the queries by id", "write one JSON object, query id: entry"):
        entries = list(document.value.items())
    for query_id, entry in entries:
        at = Entry(entry, f"{path} (query {query_id!r})")
        with published_rule(at, f"it reads {' and '.join(names)}", f"give every entry {' and '.join(names)}"):
            yield query_id, tuple(entry[name] for name in names)


def _corpus_sections(directory: Path) -> set[tuple[Any, ...]] | None:
    """The sections with text, as (document, section number); None where there is no corpus to ask."""
    if not directory.is_dir():
        return None
    found: set[tuple[Any, ...]] = set()
    for path in directory.glob("*.json"):
        document = read_document(str(path))
        with published_rule(document, "it reads each section's section_id and text", "sections: [{section_id, text}]"):
            for section in document.value.get("sections", ()):
                if section.get("text", "").strip():
                    found.add((path.stem, section["section_id"]))
    return found
