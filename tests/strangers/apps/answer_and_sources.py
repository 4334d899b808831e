"""The usual dictionary: the answer, and the sources under it."""

import sys

import ragmon
from handbook import complete, search

PROMPT = "Answer the question from the context.\n\nContext:\n{context}\n\nQuestion: {question}"


def retrieve(question):
    return search(question, k=3)


def generate(question, docs):
    context = "\n".join(doc["text"] for doc in docs)
    return complete(PROMPT.format(context=context, question=question))


@ragmon.trace
def rag(question):
    docs = retrieve(question)
    return {"answer": generate(question, docs), "sources": docs}


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        result = rag(line.strip())
        print(result["answer"], flush=True)
