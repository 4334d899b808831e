"""Pipelines and agents of LangChain and LangGraph."""

# ruff: noqa: PLC0415
from __future__ import annotations

from typing import Any, TypedDict

from langchain_core.documents import Document
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, convert_to_openai_messages
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough

from tests.support.programs.timetable import INSTRUCTIONS, KEY, found, openai_url, returned, search

PROMPT = ChatPromptTemplate.from_messages(
    [("system", INSTRUCTIONS), ("user", "Answer from the context.\n\n{context}\n\nQuestion: {question}")]
)


class Timetable(BaseRetriever):
    """Finds documents with ids and scores."""

    def _get_relevant_documents(self, query, *, run_manager):
        return [
            Document(id=one["id"], page_content=one["text"], metadata={"relevance_score": one["score"]})
            for one in search(query)
        ]


class SmallModel(BaseChatModel):
    """What answers where LangChain's package for OpenAI is not installed."""

    @property
    def _llm_type(self):
        return "small"

    @property
    def _identifying_params(self):
        return {"model": "fake"}

    def _generate(self, messages, stop=None, run_manager=None, **more):
        from openai import OpenAI

        asked = convert_to_openai_messages(messages)
        replied = OpenAI(base_url=openai_url, api_key=KEY).chat.completions.create(model="fake", messages=asked)
        return ChatResult(generations=[ChatGeneration(message=AIMessage(replied.choices[0].message.content))])


def model():
    try:
        from langchain_openai import ChatOpenAI
    except ImportError:
        return SmallModel()
    return ChatOpenAI(model="fake", base_url=openai_url, api_key=KEY)


def numbered(documents):
    return "\n".join(f"[{place}] {document.page_content}" for place, document in enumerate(documents, 1))


def lcel(tracer, retriever=None):
    """The chain of the tutorials: a retriever, a prompt, a model, a parser."""
    inputs = {"context": (retriever or Timetable()) | numbered, "question": RunnablePassthrough()}
    chain = inputs | PROMPT | model() | StrOutputParser()

    def ask(question, session):
        return chain.invoke(question, config=tracer.langchain(session))

    def stream(question, session):
        return "".join(chain.stream(question, config=tracer.langchain(session)))

    return ask, stream


def reranked(tracer):
    """The same with a reranker: it puts the documents in another order and drops the last one."""
    from langchain_classic.retrievers import ContextualCompressionRetriever
    from langchain_core.documents import BaseDocumentCompressor

    class Reranker(BaseDocumentCompressor):
        def compress_documents(self, documents, query, callbacks=None):
            returned([found[-1][1], found[-1][0]])
            return [documents[1], documents[0]]

    return lcel(tracer, ContextualCompressionRetriever(base_compressor=Reranker(), base_retriever=Timetable()))


class State(TypedDict, total=False):
    question: str
    context: list[Document]
    answer: str


def graph(tracer):
    """LangGraph's tutorial: a node that retrieves and a node that generates."""
    from langgraph.graph import START, StateGraph

    retriever, llm = Timetable(), model()

    def retrieve(state: State):
        return {"context": retriever.invoke(state["question"])}

    def generate(state: State):
        filled = PROMPT.invoke({"question": state["question"], "context": numbered(state["context"])})
        return {"answer": llm.invoke(filled).content}

    built = StateGraph(State).add_sequence([retrieve, generate]).add_edge(START, "retrieve").compile()

    def ask(question, session):
        return built.invoke({"question": question}, config=tracer.langchain(session))["answer"]

    def stream(question, session):
        states = list(built.stream({"question": question}, config=tracer.langchain(session), stream_mode="values"))
        return states[-1]["answer"]

    return ask, stream


def agent(tracer, kind="artifact"):
    """`create_agent` with a tool that retrieves.

    Args:
        tracer: Its instrumentation.
        kind: `artifact`, the tool of the tutorial, which gives the model a text and keeps the documents; `retriever`,
            LangChain's own tool of a retriever; `dicts`, a plain function; `structured`, the retriever's tool and an
            answer with fields.
    """
    from langchain.agents import create_agent
    from langchain_core.tools import create_retriever_tool, tool
    from pydantic import BaseModel

    class Reply(BaseModel):
        """The answer, and the places of the documents that it cites."""

        answer: str
        citations: list[int]

    @tool(response_format="content_and_artifact")
    def retrieve_context(query: str) -> Any:
        """Search the timetable of the ferries."""
        documents = [
            Document(id=one["id"], page_content=one["text"], metadata={"relevance_score": one["score"]})
            for one in search(query)
        ]
        return numbered(documents), documents

    retriever_tool = create_retriever_tool(
        Timetable(), "search_timetable", "Search the timetable.", response_format="content_and_artifact"
    )
    tools = {"artifact": retrieve_context, "dicts": tool(search)}.get(kind, retriever_tool)
    more = {"response_format": Reply} if kind == "structured" else {}
    built = create_agent(model(), [tools], system_prompt=INSTRUCTIONS, **more)

    def ask(question, session):
        state = built.invoke({"messages": [{"role": "user", "content": question}]}, config=tracer.langchain(session))
        return state["structured_response"].answer if kind == "structured" else state["messages"][-1].content

    def stream(question, session):
        states = list(
            built.stream(
                {"messages": [{"role": "user", "content": question}]},
                config=tracer.langchain(session),
                stream_mode="values",
            )
        )
        return states[-1]["messages"][-1].content

    return ask if kind == "structured" else (ask, stream)
