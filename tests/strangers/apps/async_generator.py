"""An answer that streams token by token from an async generator."""

import asyncio
import sys

import ragmon
from handbook import complete, search


async def model(prompt):
    for number, token in enumerate(complete(prompt).split(" ")):
        await asyncio.sleep(0)
        yield token if number == 0 else f" {token}"


@ragmon.trace
async def stream_answer(question: str):
    docs = await asyncio.to_thread(search, question)
    ragmon.record(retrieved=docs)
    context = "\n".join(doc["text"] for doc in docs)
    async for token in model(f"{context}\n{question}"):
        yield token


async def main():
    ragmon.install()
    while line := await asyncio.to_thread(sys.stdin.readline):
        async for token in stream_answer(line.strip()):
            print(token, end="", flush=True)
        print(flush=True)


if __name__ == "__main__":
    asyncio.run(main())
