"""The recordings of agents in `tests/data/agents`, which `tests.support.record_agents` made."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragmon.ingest.otlp import read
from ragmon.ingest.spans.span import Span

FOLDER: Final = Path(__file__).parents[1] / "data" / "agents"
NAMES: Final = tuple(sorted(path.name.partition(".")[0] for path in FOLDER.glob("*.jsonl.gz")))


class AskedQuestion(NamedTuple):
    """A question that an agent was asked.

    Attributes:
        question: The question.
        found: The documents that each call of the tool returned, with id, score and text.
        answer: What the agent returned.
        requests: The export requests in OTLP's JSON, in the order they came.
    """

    question: str
    found: list[list[dict[str, Any]]]
    answer: str
    requests: list[bytes]

    @property
    def returned(self) -> dict[str, Any]:
        """What the agent really did, by the columns of the table of instrumentations."""
        documents = list({document["id"]: document for listed in self.found for document in listed}.values())
        ids = [document["id"] for document in documents]
        return {
            "question": self.question,
            "ids": ids,
            "contexts": [document["text"] for document in documents],
            "answer": self.answer,
            "citations": ids[:1],  # each answer ends with [1]
            "session": None,
        }

    @property
    def spans(self) -> list[Span]:
        """The spans of the request."""
        return [span.span() for request in self.requests for span in read(request, json=True).external]


def versions(name: str) -> Mapping[str, str]:
    """The versions of the packages that made a recording."""
    return next(_lines(name))["packages"]


def questions(name: str) -> list[AskedQuestion]:
    """The questions in a recording."""
    lines = list(_lines(name))[1:]
    return [
        AskedQuestion(
            line["q"], line["found"], line["answer"], [json.dumps(body).encode() for body in line["requests"]]
        )
        for line in lines
    ]


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
