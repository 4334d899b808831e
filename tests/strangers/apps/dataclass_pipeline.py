"""Steps that hand a dataclass on; the whole pipeline is traced, the steps are not."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

import ragmon
from handbook import complete, search


@dataclass
class Query:
    text: str
    user: str = "anonymous"
    filters: dict[str, str] = field(default_factory=dict)


@dataclass
class Chunk:
    chunk_id: str
    content: str
    similarity: float


@dataclass
class Result:
    query: Query
    response: str
    chunks: list[Chunk]


def retrieve(query: Query) -> list[Chunk]:
    return [Chunk(hit["id"], hit["text"], hit["score"]) for hit in search(query.text)]


def generate(query: Query, chunks: list[Chunk]) -> str:
    context = "\n---\n".join(chunk.content for chunk in chunks)
    return complete(f"{context}\n\n{query.text}")


@ragmon.trace
def run(query: Query) -> Result:
    chunks = retrieve(query)
    return Result(query, generate(query, chunks), chunks)


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(run(Query(line.strip(), user="terminal")).response, flush=True)
