"""A pydantic-ai agent that retrieves with a tool; its own OpenTelemetry spans are all that ragmon gets."""

import os
import re

import ragmon
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

PIERS = ("north", "south", "east", "old")
TEXTS = {f"ferry#{number}": f"Ferry {number} leaves from the {PIERS[number % 4]} pier." for number in range(100)}
QUESTIONS = [f"Where does ferry {number} leave?" for number in range(100)]


def words(text):
    """The words of a text."""
    return set(re.findall(r"\w+", text.lower()))


def fake_model(messages, info):
    """A stand-in for a model, so that this runs without a key: it asks the tool first, then repeats what it found."""
    last = messages[-1].parts[-1]
    if not isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[ToolCallPart("search_handbook", {"query": last.content})])
    if not last.content:
        return ModelResponse(parts=[TextPart("not in context")])
    return ModelResponse(parts=[TextPart(f"{last.content[0]['text']} [1]")])


agent = Agent(FunctionModel(fake_model), name="ferry-agent")  # yours is Agent("openai:gpt-5")


@agent.tool_plain
def search_handbook(query: str) -> list[dict]:
    """Search the handbook. BROKEN=1 is a release with a wrong name of the index."""
    best = sorted(TEXTS, key=lambda name: -len(words(query) & words(TEXTS[name])))[:2]
    found = [{"id": name, "text": TEXTS[name]} for name in best]
    return [] if os.environ.get("BROKEN") else found


if __name__ == "__main__":
    provider = TracerProvider(resource=Resource.create({"service.name": "ferry-agent"}))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider, version=3))
    installation = ragmon.install(provider=provider)

    for question in QUESTIONS:
        agent.run_sync(question)

    installation.flush()
    for outcome in installation.monitor.outcomes():
        print(outcome.gate.name, outcome.verdict, "-", outcome.reason)
