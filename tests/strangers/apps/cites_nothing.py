"""Search and answer; the answers name no sources, because nobody asked for any."""

import sys

import ragmon
from handbook import complete, search


def retrieve(question):
    with ragmon.stage("retrieve"):
        hits = search(question)
    ragmon.record(retrieved=hits)
    return hits


def write(question, hits):
    with ragmon.stage("generate"):
        return complete("\n".join(hit["text"] for hit in hits) + "\n\n" + question)


@ragmon.trace(name="ferries")
def answer(question: str) -> dict:
    hits = retrieve(question)
    return {"text": write(question, hits), "model": "local-7b"}


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(answer(line.strip())["text"], flush=True)
