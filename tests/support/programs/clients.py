"""Clients of models of other makers, and libraries around them; the search leaves no span."""

# ruff: noqa: PLC0415 - only one of them is installed
from __future__ import annotations

from tests.support.programs.timetable import KEY, messages, model_url, openai_url, search


def mistral(tracer):
    from mistralai.client import Mistral

    client = Mistral(api_key=KEY, server_url=model_url)

    def ask(question, session):
        replied = client.chat.complete(model="fake", messages=messages(question, search(question)))
        return replied.choices[0].message.content

    def stream(question, session):
        events = client.chat.stream(model="fake", messages=messages(question, search(question)))
        return "".join(event.data.choices[0].delta.content or "" for event in events if event.data.choices)

    return ask, stream


def groq(tracer):
    from groq import Groq

    client = Groq(api_key=KEY, base_url=model_url, max_retries=0)

    def complete(question, **more):
        return client.chat.completions.create(model="fake", messages=messages(question, search(question)), **more)

    def stream(question, session):
        return "".join(
            chunk.choices[0].delta.content or "" for chunk in complete(question, stream=True) if chunk.choices
        )

    return lambda question, session: complete(question).choices[0].message.content, stream


def instructor(tracer):
    """Instructor, which makes the model answer with fields."""
    import instructor as installed
    from openai import OpenAI
    from pydantic import BaseModel

    class Reply(BaseModel):
        """The answer, and the places of the documents that it cites."""

        answer: str
        citations: list[int]

    client = installed.from_openai(OpenAI(base_url=openai_url, api_key=KEY))

    def ask(question, session):
        asked = messages(question, search(question))
        return client.chat.completions.create(model="fake", messages=asked, response_model=Reply, max_retries=0).answer

    return ask


def litellm(tracer):
    from litellm import completion

    def complete(question, **more):
        asked = messages(question, search(question))
        return completion(model="openai/fake", api_base=openai_url, api_key=KEY, messages=asked, **more)

    def stream(question, session):
        return "".join(chunk.choices[0].delta.content or "" for chunk in complete(question, stream=True))

    return lambda question, session: complete(question).choices[0].message.content, stream
