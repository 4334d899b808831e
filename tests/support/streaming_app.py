"""A program of its own: one decorator on a FastAPI endpoint that streams over an instrumented LangChain retriever."""

from __future__ import annotations

import json
import sys
from threading import Thread

import httpx
import uvicorn
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.vectorstores import InMemoryVectorStore
from openinference.instrumentation.langchain import LangChainInstrumentor
from opentelemetry.sdk.trace import TracerProvider

import ragmon
from ragmon.config.load import defaults
from tests.support.waiting import TIMEOUT

ANSWER = "Rollo ruled it first"
app = FastAPI()
store = InMemoryVectorStore(DeterministicFakeEmbedding(size=8))
store.add_documents([Document(id=f"n#{n}", page_content=f"text {n}") for n in range(5)])
retriever = store.as_retriever(search_kwargs={"k": 3})
model = FakeListChatModel(responses=[ANSWER]) | StrOutputParser()


@app.get("/ask")
@ragmon.trace(sample=1.0)
async def ask(question: str) -> StreamingResponse:
    async def answer():
        documents = await retriever.ainvoke(question)
        async for part in model.astream(f"{documents} {question}"):
            yield part

    return StreamingResponse(answer())


def main():
    provider = TracerProvider(shutdown_on_exit=False)
    sink = ragmon.testing.Collected()
    installed = ragmon.install(defaults(), provider=provider, sink=sink)
    expected = [document.id for document in retriever.invoke("Who ruled Normandy?")]
    LangChainInstrumentor().instrument(tracer_provider=provider)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    reply = httpx.get(f"http://127.0.0.1:{port}/ask", params={"question": "Who ruled Normandy?"}, timeout=TIMEOUT)
    server.should_exit = True
    thread.join()
    installed.flush(30)
    installed.shutdown()
    found = [
        {
            "q": record.q,
            "ids": record.retrieved_ids,
            "answer": record.answer_json and record.answer_json.claim,
            "milliseconds": record.latency_ms.total,
            "retrieve": record.latency_ms.retrieve,
        }
        for record in sink.records
    ]
    sys.stdout.write(
        json.dumps({"said": reply.text, "ids": expected, "elapsed": reply.elapsed.total_seconds(), "records": found})
    )


if __name__ == "__main__":
    main()
