"""A FastAPI service that answers with a LangChain chain; the lines with `ragmon` are all that monitoring takes."""

import os
import re

import ragmon
from fastapi import FastAPI
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.language_models import SimpleChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}


# Two stand-ins, so that this runs without a key. In your service they are OpenAIEmbeddings() and ChatOpenAI().
def words(text: str) -> set[str]:
    """The words of a text."""
    return set(re.findall(r"\w+", text.lower()))


VOCABULARY = sorted(set().union(*map(words, TEXTS.values())))


class WordEmbeddings(Embeddings):
    """A text as a vector: which words it has."""

    def embed_query(self, text: str) -> list[float]:
        return [0.01 + (word in words(text)) for word in VOCABULARY]

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [self.embed_query(text) for text in texts]


class FakeModel(SimpleChatModel):
    """Repeats the passage that shares most words with the question, and marks it as its source."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def _call(self, messages, stop=None, run_manager=None, **kwargs) -> str:
        context, question = messages[-1].content.split("Question: ")
        best = max(context.strip().splitlines(), key=lambda line: len(words(line) & words(question)))
        mark, passage = best.split(" ", 1)
        return f"{passage} {mark}"


def index(texts: dict[str, str]) -> InMemoryVectorStore:
    """The vector store. BROKEN=1 is the night on which a rebuild gave every text the id of the next one."""
    ids = list(texts)
    if os.environ.get("BROKEN"):
        ids = [*ids[1:], ids[0]]
    store = InMemoryVectorStore(WordEmbeddings())
    store.add_documents([Document(id=name, page_content=text) for name, text in zip(ids, texts.values(), strict=True)])
    return store


retriever = index(TEXTS).as_retriever(search_kwargs={"k": 2})
prompt = ChatPromptTemplate.from_template("Answer from the context.\n{context}\nQuestion: {question}")
chain = prompt | FakeModel() | StrOutputParser()

ragmon.install()
app = FastAPI()


class Ask(BaseModel):
    """What a user sends."""

    question: str


class Reply(BaseModel):
    """What a user gets."""

    answer: str


@app.post("/ask")
@ragmon.trace(name="ferry-desk")
def ask(body: Ask) -> Reply:
    """Answer a question from the handbook."""
    documents = retriever.invoke(body.question)
    ragmon.record(retrieved=documents)
    context = "\n".join(f"[{rank}] {document.page_content}" for rank, document in enumerate(documents, 1))
    return Reply(answer=chain.invoke({"context": context, "question": body.question}))
