"""A chat in a terminal: one function, a text in and a text out."""

import sys

import ragmon
from handbook import complete, search


@ragmon.trace
def answer(question: str) -> str:
    passages = "\n".join(hit["text"] for hit in search(question))
    return complete(f"Answer from this handbook alone.\n\n{passages}\n\nQuestion: {question}")


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(answer(line.strip()), flush=True)
