"""A service layer with Pydantic models in and out."""

import sys
from uuid import uuid4

import ragmon
from handbook import complete, search
from pydantic import BaseModel, Field


class Passage(BaseModel):
    id: str
    text: str
    score: float


class AnswerRequest(BaseModel):
    request_id: str = Field(default_factory=lambda: str(uuid4()))
    language: str = "en"
    question: str
    top_k: int = 4


class AnswerResponse(BaseModel):
    request_id: str
    answer: str
    documents: list[Passage]
    citations: list[str]


@ragmon.trace
def handle(request: AnswerRequest) -> AnswerResponse:
    documents = [Passage(**hit) for hit in search(request.question, k=request.top_k)]
    text = complete("\n".join(document.text for document in documents) + "\n" + request.question)
    cited = [document.id for document in documents if document.text == text]
    return AnswerResponse(request_id=request.request_id, answer=text, documents=documents, citations=cited)


def main() -> None:
    ragmon.install()
    for line in sys.stdin:
        response = handle(AnswerRequest(question=line.strip()))
        print(response.answer, flush=True)


if __name__ == "__main__":
    main()
