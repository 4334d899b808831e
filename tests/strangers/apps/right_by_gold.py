"""Every answer is right and cited, every question without an answer is declined; gold says so."""

import sys

import ragmon
from handbook import complete, search


@ragmon.trace
def answer(question: str) -> dict:
    docs = search(question)
    text = complete("\n".join(doc["text"] for doc in docs) + "\n" + question)
    cited = [doc["id"] for doc in docs if doc["text"] == text]
    return {"answer": text, "documents": docs, "citations": cited}


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(answer(line.strip())["answer"], flush=True)
