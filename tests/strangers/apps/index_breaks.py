"""At noon the index is rebuilt with the wrong passages: from then on the search finds nothing that answers."""

import sys

import ragmon
from handbook import HARBOURS, complete, search

NOON = 120


class Index:
    """The search index; the job that rebuilds it mixes up the names of the harbours."""

    def __init__(self):
        self.searches = 0

    def query(self, question, k=4):
        self.searches += 1
        if self.searches > NOON:
            for name, other in zip(HARBOURS, HARBOURS[1:] + HARBOURS[:1], strict=True):
                if f" {name}" in question:
                    return search(question.replace(f" {name}", f" {other}"), k)
        return search(question, k)


index = Index()


@ragmon.trace
def answer(question: str) -> dict:
    docs = index.query(question)
    text = complete("\n".join(doc["text"] for doc in docs) + "\n" + question)
    cited = [doc["id"] for doc in docs if doc["text"] == text]
    return {"answer": text, "documents": docs, "citations": cited}


if __name__ == "__main__":
    ragmon.install()
    for line in sys.stdin:
        print(answer(line.strip())["answer"], flush=True)
