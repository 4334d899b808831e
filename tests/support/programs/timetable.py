"""What the programs share: the search that they retrieve with, and the address of the model."""

from __future__ import annotations

import asyncio
import os
import typing

from tests.support import agent_model

SERVICE = "ferries"
KEY = "unused"
INSTRUCTIONS = "Answer from the timetable."
model_url = os.environ.get("MODEL_URL", "")
openai_url = f"{model_url}/v1"
found = []
"""The lists of documents that the searches for the current question returned."""


_loop = asyncio.new_event_loop()


def awaited(coroutine):
    """The result of a coroutine; all run in one loop, as in a server, which clients of models rely on."""
    try:
        return _loop.run_until_complete(coroutine)
    finally:
        _loop.run_until_complete(
            asyncio.sleep(0.01)
        )  # generators that nobody read to their end are closed, and end spans


def search(query: str) -> list[dict[str, typing.Any]]:
    """Search the timetable of the ferries.

    Args:
        query: What to look for.
    """
    documents = agent_model.search(query)
    found.append(documents)
    return documents


def returned(documents):
    """Note what a retrieval returned in the end, in place of what it searched."""
    found[:] = [documents]


def search_text(query: str) -> str:
    """Search the timetable of the ferries.

    Args:
        query: What to look for.
    """
    return numbered(search(query))


def numbered(documents):
    """The texts of documents, each with its place."""
    return "\n".join(f"[{place}] {document['text']}" for place, document in enumerate(documents, 1))


def vector(text):
    """An embedding: which words of the corpus a text has."""
    words = dict.fromkeys(word for content in agent_model.CORPUS.values() for word in _words(content))
    held = set(_words(text))
    return [1.0 if word in held else 0.01 for word in words]


def _words(text):
    return text.lower().replace(",", "").strip(".?").split()


def prompt(question, documents):
    """The prompt of a pipeline without a framework."""
    return (
        f"Answer from the context. Cite the places of the documents.\n\n{numbered(documents)}\n\nQuestion: {question}"
    )


def messages(question, documents):
    """The same as messages of a chat."""
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt(question, documents)}]
