"""A LangGraph graph of two nodes under OpenInference: nothing is decorated, ragmon reads the spans."""

import os
import re
from contextlib import suppress
from typing import TypedDict

import ragmon
from langchain_core.documents import Document
from langchain_core.language_models import SimpleChatModel
from langchain_core.retrievers import BaseRetriever
from langgraph.graph import END, START, StateGraph
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}
QUESTIONS = [f"Where does ferry {number} leave?" for number in range(100)]


def words(text):
    """The words of a text."""
    return set(re.findall(r"\w+", text.lower()))


class RateLimitError(Exception):
    """What a provider's client raises when it is asked too often."""


class FakeModel(SimpleChatModel):
    """A stand-in for a model, so that this runs without a key: it repeats the first passage.

    BROKEN=1 is the day on which the provider's quota is used up: every other question ends in an error.
    """

    @property
    def _llm_type(self):
        return "fake"

    def _call(self, messages, stop=None, run_manager=None, **kwargs):
        passage, *_, question = messages[-1].content.splitlines()
        if os.environ.get("BROKEN") and int(re.search(r"\d+", question)[0]) % 2:
            raise RateLimitError("quota exceeded")
        return f"{passage} [1]"


class Handbook(BaseRetriever):
    """The passages that share most words with a question, best first."""

    def _get_relevant_documents(self, query, *, run_manager):
        best = sorted(TEXTS, key=lambda name: -len(words(query) & words(TEXTS[name])))[:2]
        return [Document(id=name, page_content=TEXTS[name]) for name in best]


class State(TypedDict, total=False):
    """What the nodes hand on."""

    question: str
    documents: list[Document]
    answer: str


def retrieve(state: State) -> State:
    """The first node: search."""
    return {"documents": Handbook().invoke(state["question"])}


def generate(state: State) -> State:
    """The second node: answer from what was found."""
    context = "\n".join(document.page_content for document in state["documents"])
    return {"answer": FakeModel().invoke(f"{context}\nQuestion: {state['question']}").content}


def build():
    """The graph."""
    graph = StateGraph(State)
    graph.add_node("retrieve", retrieve)
    graph.add_node("generate", generate)
    graph.add_edge(START, "retrieve")
    graph.add_edge("retrieve", "generate")
    graph.add_edge("generate", END)
    return graph.compile()


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "ferry-graph"}))
    LangChainInstrumentor().instrument(tracer_provider=provider)
    installation = ragmon.install(provider=provider)

    graph = build()
    for question in QUESTIONS:
        with suppress(RateLimitError):
            graph.invoke({"question": question})

    installation.flush()
    for outcome in installation.monitor.outcomes():
        print(outcome.gate.name, outcome.verdict, "-", outcome.reason)
