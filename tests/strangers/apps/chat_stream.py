"""A chat of the hut wardens: streamed as events or whole, with sessions, and it declines in words of its own."""

import json

import ragmon
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from handbook import REFUSALS, complete, search
from pydantic import BaseModel

ragmon.install()
app = FastAPI()


class Message(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    session_id: str
    messages: list[Message]


def answer(question):
    docs = search(question)
    numbered = "\n".join(f"[{number}] {doc['text']}" for number, doc in enumerate(docs, 1))
    said = complete(f"{numbered}\n{question}")
    return docs, "That goes beyond my hut book, dear hiker." if said in REFUSALS else said


@app.post("/chat")
@ragmon.trace
def chat(chat: Chat):
    docs, said = answer(chat.messages[-1].content)
    return {"reply": said, "sources": docs}


@app.post("/stream")
@ragmon.trace
async def stream(chat: Chat):
    async def events():
        docs, said = answer(chat.messages[-1].content)
        yield f"data: {json.dumps({'sources': docs})}\n\n"
        for word in said.split(" "):
            yield f"data: {json.dumps({'delta': word + ' '})}\n\n"
        yield "data: [DONE]\n\n"

    return StreamingResponse(events(), media_type="text/event-stream")
