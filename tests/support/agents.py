"""Small agents in real frameworks, each with one tool that searches, under the instrumentation users install with it.

Runs inside of the environment of one framework, started by `tests.support.record_agents`: standard library,
OpenTelemetry's SDK and the framework, no ragmon. Each function builds an agent and returns what asks it a question.
"""

# ruff: noqa: PLC0415 - only one of the frameworks is installed
from __future__ import annotations

import asyncio
import json
import os
import sys
import typing

from tests.support import agent_model
from tests.support.agent_model import QUESTIONS

MARK = "RECORDED "
"""The start of the lines that are reports; frameworks print much else."""
SERVICE = "ferries"
KEY = "unused"
model_url = os.environ.get("MODEL_URL", "")
found = []
"""The lists of documents that the tool returned for the current question."""


def search(query: str) -> list[dict[str, typing.Any]]:
    """Search the timetable of the ferries.

    Args:
        query: What to look for.
    """
    documents = agent_model.search(query)
    found.append(documents)
    return documents


def mcp(provider):
    """Pydantic AI with a tool of a server of the Model Context Protocol, whose SDK traces its requests, too."""
    from fastmcp import FastMCP
    from pydantic_ai.mcp import MCPToolset

    server = FastMCP("timetable")
    server.tool(search)
    return pydantic_ai(provider, toolsets=[MCPToolset(server)])


def pydantic_ai(provider, **tools):
    from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.models.instrumented import InstrumentationSettings

    def reply(messages, info):
        roles = {"user-prompt": "user", "tool-return": "tool"}
        parts = [part for message in messages for part in message.parts]
        told = [(roles.get(part.part_kind, ""), str(getattr(part, "content", ""))) for part in parts]
        arguments, answer = agent_model.next_step(told)
        return ModelResponse([TextPart(answer) if arguments is None else ToolCallPart("search", arguments)])

    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    tools = tools or {"tools": [search]}
    agent = Agent(FunctionModel(reply), system_prompt="Answer from the timetable.", **tools)
    return lambda question: agent.run_sync(question).output


def openai_agents(provider):
    from agents import Agent, OpenAIResponsesModel, Runner, function_tool
    from openai import AsyncOpenAI
    from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

    OpenAIAgentsInstrumentor().instrument(tracer_provider=provider)
    model = OpenAIResponsesModel("fake", AsyncOpenAI(base_url=f"{model_url}/v1", api_key=KEY))
    agent = Agent("clerk", instructions="Answer from the timetable.", tools=[function_tool(search)], model=model)
    return lambda question: Runner.run_sync(agent, question).final_output


def smolagents(provider):
    from openinference.instrumentation.smolagents import SmolagentsInstrumentor
    from smolagents import OpenAIServerModel, ToolCallingAgent, tool

    SmolagentsInstrumentor().instrument(tracer_provider=provider)
    model = OpenAIServerModel("fake", api_base=f"{model_url}/v1", api_key=KEY)
    agent = ToolCallingAgent([tool(search)], model=model)
    return agent.run


def agno(provider):
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat
    from openinference.instrumentation.agno import AgnoInstrumentor

    AgnoInstrumentor().instrument(tracer_provider=provider)
    agent = Agent(model=OpenAIChat("fake", base_url=f"{model_url}/v1", api_key=KEY), tools=[search], telemetry=False)
    return lambda question: agent.run(question).content


def strands(provider):
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    model = OpenAIModel(client_args={"base_url": f"{model_url}/v1", "api_key": KEY}, model_id="fake")

    def ask(question):
        return str(Agent(model=model, tools=[tool(search)], callback_handler=None)(question))

    return ask


def crewai(provider):
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool
    from openinference.instrumentation.crewai import CrewAIInstrumentor

    CrewAIInstrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
    llm = LLM(model="openai/fake", base_url=f"{model_url}/v1", api_key=KEY)
    clerk = Agent(role="clerk", goal="answer", backstory="In the harbour.", tools=[tool("search")(search)], llm=llm)
    task = Task(description="{question}", expected_output="One sentence.", agent=clerk)
    crew = Crew(agents=[clerk], tasks=[task])
    return lambda question: crew.kickoff(inputs={"question": question}).raw


def traceloop(provider):
    from openai import OpenAI
    from traceloop.sdk import Traceloop
    from traceloop.sdk.decorators import task, workflow

    Traceloop.init(SERVICE, api_endpoint=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"], disable_batch=True, api_key=KEY)
    client = OpenAI(base_url=f"{model_url}/v1", api_key=KEY)
    retrieve = task(name="retrieve")(search)

    @workflow(name="timetable")
    def ask(question):
        listed = json.dumps(retrieve(question))
        messages = [{"role": "user", "content": question}, {"role": "tool", "content": listed, "tool_call_id": "1"}]
        return client.chat.completions.create(model="fake", messages=messages).choices[0].message.content

    return ask


def dspy(provider):
    import dspy
    from openinference.instrumentation.dspy import DSPyInstrumentor

    DSPyInstrumentor().instrument(tracer_provider=provider)
    dspy.configure(lm=dspy.utils.DummyLM(list(_dspy_replies()), adapter=dspy.ChatAdapter()))
    agent = dspy.ReAct("question -> answer", tools=[search], max_iters=3)
    return lambda question: agent(question=question).answer


def _dspy_replies():
    """The replies of the model to ReAct's steps, in order."""
    for question, answer in QUESTIONS.items():
        call = {"next_tool_name": "search", "next_tool_args": {"query": question}}
        yield {"next_thought": "I look it up.", **call}
        yield {"next_thought": "I know.", "next_tool_name": "finish", "next_tool_args": {}}
        yield {"reasoning": "It is in the timetable.", "answer": answer}


def google_genai(provider):
    from google import genai
    from google.genai import types
    from openinference.instrumentation.google_genai import GoogleGenAIInstrumentor

    GoogleGenAIInstrumentor().instrument(tracer_provider=provider)
    client = genai.Client(api_key=KEY, http_options=types.HttpOptions(base_url=model_url))
    config = types.GenerateContentConfig(tools=[search], system_instruction="Answer from the timetable.")
    return lambda question: client.models.generate_content(model="fake", contents=question, config=config).text


def langgraph(provider):
    from langchain.agents import create_agent
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI
    from openinference.instrumentation.langchain import LangChainInstrumentor

    LangChainInstrumentor().instrument(tracer_provider=provider)
    model = ChatOpenAI(model="fake", base_url=f"{model_url}/v1", api_key=KEY)
    agent = create_agent(model, [tool(search)], system_prompt="Answer from the timetable.")

    def ask(question):
        return agent.invoke({"messages": [{"role": "user", "content": question}]})["messages"][-1].content

    return ask


def llama_index(provider):
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.llms.openai_like import OpenAILike
    from openinference.instrumentation.llama_index import LlamaIndexInstrumentor

    LlamaIndexInstrumentor().instrument(tracer_provider=provider)
    llm = OpenAILike(
        "fake", api_base=f"{model_url}/v1", api_key=KEY, is_chat_model=True, is_function_calling_model=True
    )
    agent = FunctionAgent(tools=[search], llm=llm, system_prompt="Answer from the timetable.")

    async def run(question):
        return str(await agent.run(question))

    return lambda question: asyncio.run(run(question))


FRAMEWORKS = {
    function.__name__: function
    for function in (
        *(mcp, pydantic_ai, openai_agents, smolagents, agno, strands, crewai),
        *(traceloop, dspy, google_genai, langgraph, llama_index),
    )
}


def main(name):
    """Ask the agent of a framework every question, and print what really happened."""
    from opentelemetry import trace
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource({"service.name": SERVICE}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if name != "traceloop":  # which sets a provider of its own
        trace.set_tracer_provider(provider)
    ask = FRAMEWORKS[name](provider)
    for question in QUESTIONS:
        found.clear()
        answer = ask(question)
        trace.get_tracer_provider().force_flush()
        sys.stdout.write(MARK + json.dumps({"q": question, "found": found, "answer": answer}) + "\n")
        sys.stdout.flush()
    os._exit(0)  # threads of telemetry that cannot reach anybody are not waited for


if __name__ == "__main__":
    main(sys.argv[1])
