"""A timid prompt: the model declines every third question that the handbook answers."""

import sys
from itertools import count

import ragmon
from handbook import PASSAGES, complete, search

TIMID = "I'm sorry, I cannot answer that with certainty from the documents."
asked = count()


def generate(question, docs):
    text = complete("\n".join(doc["text"] for doc in docs) + "\n" + question)
    return TIMID if text in PASSAGES.values() and next(asked) % 3 == 0 else text


@ragmon.trace
def answer(question: str) -> dict:
    docs = search(question)
    text = generate(question, docs)
    cited = [doc["id"] for doc in docs if doc["text"] == text]
    return {"answer": text, "documents": docs, "citations": cited}


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(answer(line.strip())["answer"], flush=True)
