"""An async FastAPI endpoint that streams its answer."""

import asyncio

import ragmon
from fastapi import FastAPI, Request
from fastapi.responses import StreamingResponse
from handbook import complete, search

ragmon.install()
app = FastAPI()


async def tokens(prompt):
    """What a model's client yields."""
    for number, word in enumerate(complete(prompt).split(" ")):
        await asyncio.sleep(0)
        yield f" {word}" if number else word


@app.post("/chat")
@ragmon.trace
async def chat(request: Request):
    body = await request.json()
    question = body["question"]
    docs = search(question)
    ragmon.record(retrieved=docs)
    prompt = "\n".join(doc["text"] for doc in docs) + "\n" + question
    return StreamingResponse(tokens(prompt), media_type="text/plain")
