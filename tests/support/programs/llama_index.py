"""Query engines, chat engines and agents of LlamaIndex."""

from __future__ import annotations

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.chat_engine import ContextChatEngine
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import CitationQueryEngine, RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.tools import FunctionTool, RetrieverTool
from openai import OpenAI

from tests.support.programs.timetable import INSTRUCTIONS, KEY, awaited, found, openai_url, returned, search

try:
    from llama_index.llms.openai_like import OpenAILike
except ImportError:

    class SmallModel(CustomLLM):
        """What answers where LlamaIndex's package for OpenAI is not installed; it calls no functions."""

        @property
        def metadata(self):
            return LLMMetadata(model_name="fake")

        @llm_completion_callback()
        def complete(self, prompt, formatted=False, **more):
            client, asked = OpenAI(base_url=openai_url, api_key=KEY), [{"role": "user", "content": prompt}]
            replied = client.chat.completions.create(model="fake", messages=asked)
            return CompletionResponse(text=replied.choices[0].message.content)

        @llm_completion_callback()
        def stream_complete(self, prompt, formatted=False, **more):
            text = self.complete(prompt).text
            return (CompletionResponse(text=text[:end], delta=text[end - 1]) for end in range(1, len(text) + 1))

    MODEL = SmallModel()
else:
    MODEL = OpenAILike("fake", api_base=openai_url, api_key=KEY, is_chat_model=True, is_function_calling_model=True)


class Timetable(BaseRetriever):
    def _retrieve(self, query_bundle):
        return [
            NodeWithScore(node=TextNode(id_=one["id"], text=one["text"]), score=one["score"])
            for one in search(query_bundle.query_str)
        ]


class Reranker(BaseNodePostprocessor):
    """Puts the documents in another order and drops the last one."""

    def _postprocess_nodes(self, nodes, query_bundle=None):
        returned([found[-1][1], found[-1][0]])
        return [nodes[1], nodes[0]]


def query_engine(tracer, kind="plain"):
    """A query engine: `plain`, `reranked` by a postprocessor, or `citation`, LlamaIndex's own with numbered sources."""

    def engine(streaming):
        if kind == "citation":
            return CitationQueryEngine.from_args(None, retriever=Timetable(), llm=MODEL, streaming=streaming)
        postprocessors = [Reranker()] if kind == "reranked" else []
        return RetrieverQueryEngine.from_args(
            Timetable(), llm=MODEL, node_postprocessors=postprocessors, streaming=streaming
        )

    whole, streamed = engine(streaming=False), engine(streaming=True)

    def ask(question, session):
        return str(whole.query(question))

    def stream(question, session):
        return "".join(streamed.query(question).response_gen)

    return ask, stream


def chat_engine(tracer):
    """A chat engine that remembers the turns of a session."""
    engines = {}

    def engine(session):
        return engines.setdefault(session, ContextChatEngine.from_defaults(retriever=Timetable(), llm=MODEL))

    def ask(question, session):
        return str(engine(session).chat(question))

    def stream(question, session):
        return "".join(engine(session).stream_chat(question).response_gen)

    return ask, stream


def agent(tracer, kind="retriever"):
    """An agent with the tool of a `retriever`, or with a function that returns `dicts`."""
    tool = RetrieverTool.from_defaults(Timetable(), name="search_timetable", description="Search the timetable.")
    tool = FunctionTool.from_defaults(search) if kind == "dicts" else tool
    made = FunctionAgent(tools=[tool], llm=MODEL, system_prompt=INSTRUCTIONS)

    async def run(question):
        return str(await made.run(question))

    return lambda question, session: awaited(run(question))
