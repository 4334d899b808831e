"""The application the demo monitors: what a team's own code looks like with ragmon in it."""

from __future__ import annotations

from typing import Any

import ragmon
from ragmon.demo.index import load_corpus
from ragmon.demo.pipeline import Pipeline

BUILD = "demo-1"


class Application:
    """A question-answering service over the demo's corpus."""

    def __init__(self) -> None:
        self.pipeline = Pipeline(load_corpus())
        self.ask = ragmon.trace(name="harbour")(self._ask)

    def _ask(self, question: str) -> dict[str, Any]:
        """Answer a question, with citations."""
        with ragmon.stage("retrieve"):
            hits = self.pipeline.retrieve(question)
        ragmon.record(
            retrieved=[{"id": hit.id, "text": hit.text, "score": hit.score} for hit in hits],
            index_hash=self.pipeline.index_hash,
            build=BUILD,
        )
        with ragmon.stage("generate"):
            answer = self.pipeline.answer(question, hits)
        return {"answer": answer.claim, "citations": answer.citations}
