"""A FastAPI service with a Pydantic body and dependencies; `uvicorn --workers 2` serves it."""

from collections.abc import Iterator
from typing import Annotated

import ragmon
from fastapi import Depends, FastAPI, Header, HTTPException
from handbook import complete, search
from pydantic import BaseModel

ragmon.install()
app = FastAPI()


class Ask(BaseModel):
    question: str
    top_k: int = 4


class Reply(BaseModel):
    answer: str


class Index:
    """A connection to the search server."""

    def __init__(self) -> None:
        self.is_open = True

    def find(self, query: str, k: int) -> list[dict]:
        if not self.is_open:
            raise HTTPException(503)
        return search(query, k)


def index() -> Iterator[Index]:
    opened = Index()
    yield opened
    opened.is_open = False


def tenant(x_tenant: Annotated[str, Header()] = "public") -> str:
    return x_tenant


@app.post("/ask")
@ragmon.trace
def ask(body: Ask, index: Annotated[Index, Depends(index)], tenant: Annotated[str, Depends(tenant)]) -> Reply:
    docs = index.find(body.question, body.top_k)
    ragmon.record(retrieved=docs)
    context = "\n".join(doc["text"] for doc in docs)
    return Reply(answer=complete(f"{context}\n{body.question}"))
