"""A class that holds its retriever, its prompt and its counters; a method of it answers."""

import sys

import ragmon
from handbook import complete, search


class Retriever:
    def __init__(self, k):
        self.k = k

    def __call__(self, query):
        return search(query, self.k)


class HandbookBot:
    """Answers questions about the ferries."""

    template = "You are a helpful assistant.\nContext: {context}\nQuestion: {question}\nAnswer:"

    def __init__(self, retriever, verbose=False):
        self.retriever = retriever
        self.verbose = verbose
        self.asked = 0

    def _prompt(self, question, docs):
        return self.template.format(context=" ".join(doc["text"] for doc in docs), question=question)

    @ragmon.trace
    def ask(self, question, *, temperature=0.0):
        self.asked += 1
        docs = self.retriever(question)
        ragmon.record(retrieved=docs)
        return self.reply(question, docs)

    @staticmethod
    def _clean(text):
        return text.strip()

    def reply(self, question, docs):
        return self._clean(complete(self._prompt(question, docs)))


if __name__ == "__main__":
    ragmon.install()
    bot = HandbookBot(Retriever(k=5))
    for line in sys.stdin:
        print(bot.ask(line.strip(), temperature=0.2), flush=True)
