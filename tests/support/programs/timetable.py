"""What the programs share: the search that they retrieve with, and the address of the model."""

from __future__ import annotations

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


def search(query: str) -> list[dict[str, typing.Any]]:
    """Search the timetable of the ferries.

    Args:
        query: What to look for.
    """
    documents = agent_model.search(query)
    found.append(documents)
    return documents


def search_text(query: str) -> str:
    """Search the timetable of the ferries.

    Args:
        query: What to look for.
    """
    return numbered(search(query))


def numbered(documents):
    """The texts of documents, each with its place."""
    return "\n".join(f"[{place}] {document['text']}" for place, document in enumerate(documents, 1))


def prompt(question, documents):
    """The prompt of a pipeline without a framework."""
    return (
        f"Answer from the context. Cite the places of the documents.\n\n{numbered(documents)}\n\nQuestion: {question}"
    )


def messages(question, documents):
    """The same as messages of a chat."""
    return [{"role": "system", "content": INSTRUCTIONS}, {"role": "user", "content": prompt(question, documents)}]
