"""Agents of frameworks that come with a tool loop of their own, each with one tool that searches."""

# ruff: noqa: PLC0415 - only one of the frameworks is installed
from __future__ import annotations

import inspect
import json

from tests.support.programs.timetable import (
    INSTRUCTIONS,
    KEY,
    SERVICE,
    awaited,
    model_url,
    numbered,
    openai_url,
    search,
    search_text,
)

TOOLS = {"dicts": search, "text": search_text}
"""What a tool returns: documents with ids, or a text for the model."""


def openai_agents(tracer, returns="dicts", group=""):
    """OpenAI's Agents SDK; a `group` is its own name of a session."""
    from agents import Agent, ModelSettings, OpenAIResponsesModel, RunConfig, Runner, function_tool
    from openai import AsyncOpenAI

    model = OpenAIResponsesModel("fake", AsyncOpenAI(base_url=openai_url, api_key=KEY))
    tool = function_tool(TOOLS[returns])
    agent = Agent("clerk", instructions=INSTRUCTIONS, tools=[tool], model=model, model_settings=ModelSettings())

    def config(session):
        return RunConfig(group_id=session) if group else RunConfig()

    def ask(question, session):
        return awaited(Runner.run(agent, question, run_config=config(session))).final_output

    async def streamed(question, session):
        result = Runner.run_streamed(agent, question, run_config=config(session))
        async for _ in result.stream_events():
            pass
        return result.final_output

    return ask, lambda question, session: awaited(streamed(question, session))


def pydantic_ai(tracer, kind="dicts"):
    """Pydantic AI: a tool that returns `dicts` or `text`, or `structured`, an answer with fields."""
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models import openai
    from pydantic_ai.providers.openai import OpenAIProvider

    class Reply(BaseModel):
        """The answer, and the places of the documents that it cites."""

        answer: str
        citations: list[int]

    model_class = getattr(openai, "OpenAIChatModel", None) or openai.OpenAIModel  # its name before version 1
    model = model_class("fake", provider=OpenAIProvider(base_url=openai_url, api_key=KEY))
    more = {"output_type": Reply} if kind == "structured" else {}
    agent = Agent(model, system_prompt=INSTRUCTIONS, tools=[TOOLS.get(kind, search)], **more)
    Agent.instrument_all()

    knows_sessions = "conversation_id" in inspect.signature(agent.run).parameters

    def conversation(session):
        return {"conversation_id": session} if knows_sessions else {}

    def ask(question, session):
        output = awaited(agent.run(question, **conversation(session))).output
        return output.answer if kind == "structured" else output

    async def streamed(question, session):
        async with agent.run_stream(question, **conversation(session)) as result:
            return "".join([text async for text in result.stream_text(delta=True)])

    return ask if kind == "structured" else (ask, lambda question, session: awaited(streamed(question, session)))


def mcp(tracer):
    """Pydantic AI with a tool of a server of the Model Context Protocol, whose SDK traces its requests, too."""
    from fastmcp import FastMCP
    from pydantic_ai import Agent
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    server = FastMCP("timetable")
    server.tool(search)
    model = OpenAIChatModel("fake", provider=OpenAIProvider(base_url=openai_url, api_key=KEY))
    agent = Agent(model, system_prompt=INSTRUCTIONS, toolsets=[MCPToolset(server)])
    Agent.instrument_all()
    return lambda question, session: awaited(agent.run(question, conversation_id=session)).output


def smolagents(tracer, returns="dicts"):
    from smolagents import OpenAIServerModel, Tool, ToolCallingAgent, tool

    class RetrieverTool(Tool):
        """The tool of the tutorial."""

        name = "retriever"
        description = "Search the timetable of the ferries."
        inputs = {"query": {"type": "string", "description": "What to look for."}}  # noqa: RUF012 - as smolagents reads it
        output_type = "string"

        def forward(self, query: str) -> str:
            return "Retrieved documents:\n" + numbered(search(query))

    model = OpenAIServerModel("fake", api_base=openai_url, api_key=KEY)
    made = ToolCallingAgent([tool(search) if returns == "dicts" else RetrieverTool()], model=model)

    def stream(question, session):
        *_, last = made.run(question, stream=True)
        return last.output

    return lambda question, session: made.run(question), stream


def agno(tracer, kind="dicts"):
    """Agno: a tool that returns dicts, or `knowledge`, a retriever of its own."""
    from agno.agent import Agent
    from agno.models.openai import OpenAIChat

    def knowledge_retriever(query, agent=None, num_documents=None, **more):
        return [{"id": one["id"], "content": one["text"], "meta_data": {}} for one in search(query)]

    model = OpenAIChat("fake", base_url=openai_url, api_key=KEY)
    tools = {"tools": [search]}
    if kind == "knowledge":
        tools = {"knowledge_retriever": knowledge_retriever, "search_knowledge": True}
    made = Agent(model=model, telemetry=False, **tools)

    def ask(question, session):
        run = made.run(question, session_id=session)
        if run.status == "ERROR":
            raise RuntimeError(run.content)
        return run.content

    def stream(question, session):
        return "".join(
            event.content
            for event in made.run(question, session_id=session, stream=True)
            if event.event == "RunContent"
        )

    return ask, stream


def strands(tracer, returns="dicts"):
    """Strands: a tool that returns dicts, or `text`, its own kind of result as its `retrieve` tool."""
    from strands import Agent, tool
    from strands.models.openai import OpenAIModel

    @tool
    def retrieve(query: str) -> dict:
        """Search the timetable of the ferries."""
        return {"status": "success", "content": [{"text": numbered(search(query))}]}

    model = OpenAIModel(client_args={"base_url": openai_url, "api_key": KEY}, model_id="fake")
    used = tool(search) if returns == "dicts" else retrieve

    def agent(session):
        return Agent(model=model, tools=[used], callback_handler=None, trace_attributes={"session.id": session})

    async def streamed(question, session):
        return "".join([event["data"] async for event in agent(session).stream_async(question) if "data" in event])

    return (
        lambda question, session: str(agent(session)(question)).strip(),
        lambda question, session: awaited(streamed(question, session)),
    )


def crewai(tracer, returns="dicts"):
    from crewai import LLM, Agent, Crew, Task
    from crewai.tools import tool

    llm = LLM(model="openai/fake", base_url=openai_url, api_key=KEY)
    used = tool("search")(TOOLS[returns])
    clerk = Agent(role="clerk", goal="answer", backstory="In the harbour.", tools=[used], llm=llm)
    task = Task(description="{question}", expected_output="One sentence.", agent=clerk)
    crew = Crew(agents=[clerk], tasks=[task])
    return lambda question, session: crew.kickoff(inputs={"question": question}).raw


def dspy(tracer, kind="react"):
    """DSPy: `react`, an agent; `module`, a retriever whose passages have ids, and a predictor."""
    import dspy as installed

    installed.configure(lm=installed.LM("openai/fake", api_base=openai_url, api_key=KEY, cache=False))

    class Timetable(installed.Retrieve):
        def forward(self, query, k=None):
            return installed.Prediction(passages=[f"{one['text']}" for one in search(query)])

    class Rag(installed.Module):
        def __init__(self):
            super().__init__()
            self.retrieve = Timetable(k=3)
            self.respond = installed.ChainOfThought("context, question -> answer")

        def forward(self, question):
            return self.respond(context=self.retrieve(question).passages, question=question)

    made = installed.ReAct("question -> answer", tools=[search], max_iters=3) if kind == "react" else Rag()
    return lambda question, session: made(question=question).answer


def autogen(tracer, returns="dicts"):
    from autogen_agentchat.agents import AssistantAgent
    from autogen_ext.models.openai import OpenAIChatCompletionClient

    info = {
        "vision": False,
        "function_calling": True,
        "json_output": False,
        "structured_output": False,
        "family": "unknown",
    }

    def search_documents(query: str) -> str:
        """Search the timetable of the ferries."""
        return json.dumps(search(query)) if returns == "dicts" else search_text(query)

    async def run(question):
        client = OpenAIChatCompletionClient(model="fake", base_url=openai_url, api_key=KEY, model_info=info)
        made = AssistantAgent(
            "clerk", client, tools=[search_documents], system_message=INSTRUCTIONS, reflect_on_tool_use=True
        )
        return (await made.run(task=question)).messages[-1].content

    return lambda question, session: awaited(run(question))


def ag2(tracer):
    from ag2 import Agent
    from ag2.config import OpenAIConfig
    from ag2.middleware.builtin.telemetry import TelemetryMiddleware

    config = OpenAIConfig(model="fake", base_url=openai_url, api_key=KEY)
    telemetry = TelemetryMiddleware(agent_name="clerk", provider_name="openai", model_name="fake")
    made = Agent("clerk", prompt=INSTRUCTIONS, config=config, tools=[search], middleware=[telemetry])
    return lambda question, session: awaited(made.ask(question)).body


def agent_framework(tracer, returns="dicts"):
    from agent_framework import Agent
    from agent_framework.observability import enable_instrumentation
    from agent_framework.openai import OpenAIChatCompletionClient

    enable_instrumentation(enable_sensitive_data=True)
    client = OpenAIChatCompletionClient(model="fake", base_url=openai_url, api_key=KEY)
    made = Agent(client=client, instructions=INSTRUCTIONS, tools=[TOOLS[returns]])

    async def run(question, session):
        return (await made.run(question, session=made.create_session(session_id=session))).text

    async def streamed(question, session):
        updates = made.run(question, session=made.create_session(session_id=session), stream=True)
        return "".join([update.text async for update in updates])

    return (
        lambda question, session: awaited(run(question, session)),
        lambda question, session: awaited(streamed(question, session)),
    )


def semantic_kernel(tracer, logs=""):
    """Semantic Kernel; `logs` sends its log records, too, which hold the messages of model calls."""
    import logging

    from openai import AsyncOpenAI
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
    from semantic_kernel.functions import kernel_function

    if logs:
        from opentelemetry.sdk._logs import LoggingHandler

        logging.getLogger().addHandler(LoggingHandler(logger_provider=tracer.loggers))
        logging.getLogger("semantic_kernel").setLevel(logging.INFO)

    class Timetable:
        @kernel_function(name="search", description="Search the timetable of the ferries.")
        def search(self, query: str) -> str:
            return json.dumps(search(query))

    client = AsyncOpenAI(base_url=openai_url, api_key=KEY)
    service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
    made = ChatCompletionAgent(service=service, name="clerk", instructions=INSTRUCTIONS, plugins=[Timetable()])

    async def run(question):
        return str(await made.get_response(messages=question))

    return lambda question, session: awaited(run(question))


def adk(tracer):
    """Google's Agent Development Kit, whose sessions are its own."""
    import os

    from google.adk.agents import LlmAgent
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    os.environ |= {"GOOGLE_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": model_url, "GOOGLE_GENAI_USE_VERTEXAI": "0"}
    agent = LlmAgent(name="clerk", model="gemini-2.5-flash", instruction=INSTRUCTIONS, tools=[search])
    runner, known = InMemoryRunner(agent, app_name=SERVICE), set()

    async def run(question, session):
        if session not in known:
            known.add(session)
            await runner.session_service.create_session(app_name=SERVICE, user_id="passenger", session_id=session)
        content, answer = types.Content(role="user", parts=[types.Part(text=question)]), None
        async for event in runner.run_async(user_id="passenger", session_id=session, new_message=content):
            if event.error_code:
                raise RuntimeError(event.error_message)
            if event.is_final_response():
                answer = event.content.parts[0].text
        return answer

    return lambda question, session: awaited(run(question, session))
