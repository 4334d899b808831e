"""Shapes of results, arguments, documents and streams that need no framework, by name; run by `shapes_program`.

A shape is a function that gets `trace`, which is `ragmon.trace` under the shape's name, decorates something with it and
calls that.
"""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import json
import threading
import types
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypedDict

import attrs
import msgspec
from pydantic import BaseModel, ConfigDict, RootModel
from pydantic import v1 as pydantic_v1

import ragmon

Q = "Is it?"
Shape = Callable[[Callable[..., Any]], object]
DICTS = [{"id": "d1", "text": "yes one", "score": 0.9}, {"id": "d2", "text": "two", "score": 0.4}]
SHAPES: dict[str, Shape] = {}


def returning(result: Any, **told: Any) -> Shape:
    """A function that answers everything with the same."""

    def run(trace: Callable[..., Any]) -> object:
        @trace(**told)
        def answer(question: str) -> object:
            return result

        return answer(Q)

    return run


def taking(*args: Any, **kwargs: Any) -> Shape:
    """A function that is asked with these arguments."""

    def run(trace: Callable[..., Any]) -> object:
        @trace
        def answer(*body: Any, **more: Any) -> object:
            return "yes"

        return answer(*args, **kwargs)

    return run


def body(value: Any) -> Shape:
    """A function with a parameter of no usual name."""

    def run(trace: Callable[..., Any]) -> object:
        @trace
        def ask(payload: Any, session: Any = None) -> object:
            return "yes"

        return ask(value)

    return run


def recording(result: Any = "yes", **fields: Any) -> Shape:
    """A function that says something with `ragmon.record`."""

    def run(trace: Callable[..., Any]) -> object:
        @trace
        def answer(question: str) -> object:
            ragmon.record(**fields)
            return result

        return answer(Q)

    return run


def family(name: str, values: Mapping[str, Any], make: Callable[[Any], Shape] = returning) -> dict[str, Shape]:
    """Shapes whose names begin alike."""
    return {f"{name}: {inner}": make(value) for inner, value in values.items()}


# --- texts and what is none -------------------------------------------------------------------------------------------


class Word(str):
    __slots__ = ()


class Colour(enum.StrEnum):
    RED = "red"


SHAPES |= family(
    "value",
    {
        "text": "yes",
        "text with citations": "- yes\n- citations: [d1, d2]",
        "empty text": "",
        "space": " \n ",
        "own class of text": Word("yes"),
        "enumeration of texts": Colour.RED,
        "long text": "yes " * 30_000,
        "zero byte": "yes\0no",
        "half a pair": "half: \ud83d",
        "right to left": "\u202eyes",
        "combining": "e\u0301t\u00e9",
        "none": None,
        "number": 7,
        "true": True,
        "not a number": float("nan"),
        "bytes": b"yes",
        "bytearray": bytearray(b"yes"),
        "memoryview": memoryview(b"yes"),
        "object": object(),
        "class": Word,
        "function": returning,
        "error": ValueError("yes"),
        "decimal": decimal.Decimal("1.5"),
        "fraction": fractions.Fraction(1, 3),
        "time": dt.datetime(2025, 1, 1, tzinfo=dt.UTC),
        "uuid": uuid.UUID(int=1),
        "path": Path("yes"),
        "ellipsis": ...,
        "list of numbers": [1, 2],
        "list of texts": ["yes", "no"],
        "empty list": [],
        "set": {"yes"},
        "frozenset": frozenset({"yes"}),
        "empty tuple": (),
        "tuple of numbers": (1, 2),
        "tuple of empty lists": ([], []),
        "empty dict": {},
        "dict of numbers": {1: "yes"},
        "range": range(3),
        "lock": threading.Lock(),
        "module": types,
    },
)
SHAPES |= family(
    "tuple",
    {
        "text and documents": ("yes", DICTS),
        "documents and text": (DICTS, "yes"),
        "text and status": ("yes", 200),
        "dict, status, headers": ({"answer": "yes"}, 200, {"X-Header": "1"}),
        "text, documents, number": ("yes", DICTS, 0.5),
        "text and ids": ("yes", ["d1", "d2"]),
        "two texts": ("yes", "no"),
        "dict and documents": ({"answer": "yes"}, DICTS),
        "one text": ("yes",),
        "nested": (("yes", DICTS), 200),
    },
)
CLAIMS = (
    *("claim", "answer", "response", "response_txt", "result", "output_text", "output", "generation", "text"),
    *("content", "completion", "message", "reply", "refusal", "final_answer", "Answer", "antwort"),
)
SHAPES |= family("claim under", {name: {name: "yes", "documents": DICTS} for name in CLAIMS})
SHAPES |= family("no claim under", {name: {name: None} for name in ("answer", "claim", "choices", "replies", "status")})
SHAPES |= family(
    "claim is",
    {
        "true": {"answer": True},
        "number": {"answer": 7},
        "object": {"answer": object()},
        "dict of claim": {"answer": {"claim": "yes"}},
        "dict of text": {"response": {"output": {"text": "yes"}}},
        "list of parts": {"answer": [{"type": "text", "text": "y"}, {"type": "text", "text": "es"}]},
        "list of texts": {"answer": ["y", "es"]},
        "parts with a thought": {"content": [{"type": "thinking", "thinking": "no"}, {"type": "text", "text": "yes"}]},
        "bytes": {"answer": b"yes"},
        "own class of text": {"answer": Word("yes")},
        "deep": {"data": {"data": {"data": {"answer": "yes"}}}},
        "deeper": {"data": {"data": {"data": {"data": {"answer": "yes"}}}}},
        "two": {"answer": "yes", "claim": "no"},
        "empty": {"answer": ""},
    },
)
SHAPES |= family(
    "envelope",
    {
        name: {name: {"answer": "yes", "documents": DICTS, "citations": ["d1"]}, "status": "ok"}
        for name in ("answer_json", "answer", "response", "result", "output", "data", "payload")
    },
)
SHAPES |= family(
    "model reply",
    {
        "choices": {"choices": [{"message": {"role": "assistant", "content": "yes"}, "finish_reason": "stop"}]},
        "choices of text": {"choices": [{"text": "yes", "index": 0}]},
        "no choices": {"choices": []},
        "two choices": {"choices": [{"message": {"content": "yes"}}, {"message": {"content": "no"}}]},
        "refusal": {"choices": [{"message": {"content": None, "refusal": "yes"}}]},
        "tool calls": {"choices": [{"message": {"content": None, "tool_calls": [{"function": {"name": "f"}}]}}]},
        "generations": {"generations": [[{"text": "yes"}]]},
        "replies": {"llm": {"replies": ["yes", "no"], "meta": [{"model": "m"}]}},
        "empty replies": {"replies": [[]]},
        "replies and documents": {"llm": {"replies": ["yes"]}, "retriever": {"documents": DICTS}},
        "ranker after retriever": {
            "llm": {"replies": ["yes"]},
            "retriever": {"documents": DICTS[::-1]},
            "ranker": {"documents": DICTS},
        },
        "answers": {"builder": {"answers": [SimpleNamespace(data="yes", query="q", documents=DICTS)]}},
        "messages": {"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}]},
        "messages, user last": {"messages": [{"role": "assistant", "content": "no"}, {"role": "user", "content": "q"}]},
        "list of messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "yes"}],
        "output of responses": {
            "output": [
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "thinks"}]},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "yes"}]},
            ]
        },
        "gateway": {"statusCode": 200, "body": '{"answer": "yes", "sources": ["d1"]}'},
        "gateway of text": {"statusCode": 200, "body": "yes"},
        "gateway, encoded": {"statusCode": 200, "body": "eWVz", "isBase64Encoded": True},
        "langchain chain": {"input": "q", "context": DICTS, "answer": "yes"},
        "retrieval chain": {"query": "q", "result": "yes", "source_documents": DICTS},
        "topk": {"retrieval": {"topk": DICTS}, "answer": {"claim": "yes", "citations": [{"id": "d1", "start": 0}]}},
        "chroma": {"answer": "yes", "ids": [["d1", "d2"]], "documents": [["one", "two"]], "distances": [[0.1, 0.2]]},
    },
)
SHAPES |= family(
    "json as text",
    {
        "object": json.dumps({"answer": "yes", "citations": ["d1"]}),
        "fenced": '```json\n{"answer": "yes", "citations": ["d1"]}\n```',
        "inside a dict": {"answer": json.dumps({"answer": "yes", "citations": ["d1"]})},
        "list": '["yes"]',
    },
)
SHAPES |= family(
    "thought",
    {
        "closed": "<think>\n[2] does not help.\n</think>\n\nyes [1]",
        "end alone": "[2] does not help.\n</think>\n\nyes [1]",
        "in a dict": {"answer": "<think>no</think>yes [1]", "documents": DICTS},
    },
)

# --- kinds of objects, times kinds of documents -----------------------------------------------------------------------


@dataclasses.dataclass
class Reply:
    answer: str
    citations: Any
    documents: Any


@dataclasses.dataclass(slots=True, frozen=True)
class SlottedReply:
    answer: str
    citations: Any
    documents: Any


@attrs.define
class AttrsReply:
    answer: str
    citations: Any
    documents: Any


class ModelReply(BaseModel):
    answer: str
    citations: Any
    documents: Any


class OpenReply(BaseModel):
    model_config = ConfigDict(extra="allow")


class AliasReply(BaseModel):
    model_config = ConfigDict(populate_by_name=True, alias_generator=str.upper)
    answer: str
    citations: Any
    documents: Any


class V1Reply(pydantic_v1.BaseModel):
    answer: str
    citations: Any
    documents: Any


class StructReply(msgspec.Struct):
    answer: str
    citations: Any
    documents: Any


class TupleReply(NamedTuple):
    answer: str
    citations: Any
    documents: Any


class TypedReply(TypedDict):
    answer: str
    citations: Any
    documents: Any


class OwnReply:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


class OwnSlots:
    __slots__ = ("answer", "citations", "documents")

    def __init__(self, answer: Any, citations: Any, documents: Any) -> None:
        self.answer, self.citations, self.documents = answer, citations, documents


class Properties:
    """Everything is a property over private fields."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    answer = property(lambda self: self._fields["answer"])
    citations = property(lambda self: self._fields["citations"])
    documents = property(lambda self: self._fields["documents"])


class Forwards:
    """As a proxy: what it does not have, it asks somebody else for."""

    def __init__(self, **fields: Any) -> None:
        self._inner = SimpleNamespace(**fields)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._inner, name)


class DictReply(dict):
    pass


class HeavyDict(collections.UserDict):
    pass


REPLIES: dict[str, Callable[..., Any]] = {
    "dict": dict,
    "dataclass": Reply,
    "dataclass with slots": SlottedReply,
    "attrs": AttrsReply,
    "pydantic": ModelReply,
    "pydantic extras": OpenReply.model_validate,
    "pydantic aliases": AliasReply,
    "pydantic 1": V1Reply,
    "msgspec": StructReply,
    "named tuple": TupleReply,
    "typed dict": TypedReply,
    "namespace": SimpleNamespace,
    "own class": OwnReply,
    "own slots": OwnSlots,
    "properties": Properties,
    "proxy": Forwards,
    "own dict": DictReply,
    "user dict": HeavyDict,
    "ordered dict": collections.OrderedDict,
    "default dict": lambda **fields: collections.defaultdict(list, fields),
    "chain map": lambda **fields: collections.ChainMap({}, fields),
    "mapping proxy": lambda **fields: types.MappingProxyType(fields),
}


class LangChainLike:
    def __init__(self, page_content: str, metadata: dict[str, Any], id: str | None = None) -> None:  # noqa: A002
        self.page_content, self.metadata, self.id = page_content, metadata, id


def node(text: str, key: str, score: float) -> Any:
    """As LlamaIndex has it: the node lies inside."""
    return SimpleNamespace(node=SimpleNamespace(text=text, node_id=key, metadata={"file_name": "a.pdf"}), score=score)


LANGCHAIN = [LangChainLike("yes one", {"source": "a"}, "d1"), LangChainLike("two", {"source": "b"}, "d2")]
NODES = [node("yes one", "d1", 0.9), node("two", "d2", 0.4)]
DOCUMENTS: dict[str, Any] = {
    "dicts": DICTS,
    "tuple of dicts": tuple(DICTS),
    "deque of dicts": collections.deque(DICTS),
    "objects": LANGCHAIN,
    "nodes": NODES,
    "pairs": [(LANGCHAIN[0], 0.9), (LANGCHAIN[1], 0.4)],
    "texts": ["yes one", "two"],
    "none": None,
    "empty": [],
}


def reply_of(kind: str, documents: Any) -> Any:
    made = REPLIES[kind]
    fields = {"answer": "yes", "citations": ["d1"], "documents": documents}
    return made(fields) if kind == "pydantic extras" else made(**fields)


for reply_kind in REPLIES:
    SHAPES |= family(
        f"{reply_kind} with documents", {name: reply_of(reply_kind, value) for name, value in DOCUMENTS.items()}
    )

# --- documents --------------------------------------------------------------------------------------------------------

NAMES = (
    *("documents", "source_documents", "source_nodes", "chunks", "contexts", "context", "docs", "retrieved_documents"),
    *("retrieved_docs", "retrieved_contexts", "retrieval_context", "sources", "references", "retrieved"),
    *("retrieved_ids", "hits", "matches", "results", "candidates", "candidate_ids"),
)
SHAPES |= family("documents under", {name: {"answer": "yes", name: DICTS} for name in NAMES})
SHAPES |= family("ids under", {name: {"answer": "yes", name: ["d1", "d2"]} for name in NAMES})
SHAPES |= family("a text under", {name: {"answer": "yes", name: "one\ntwo"} for name in NAMES})


class Passage(NamedTuple):
    id: str
    text: str


class Scored(NamedTuple):
    id: str
    content: str
    score: float


ONE_DOCUMENT: dict[str, Any] = {
    "number": {"id": 7},
    "uuid": {"id": uuid.UUID(int=1)},
    "empty id": {"id": "", "metadata": {"chunk_id": "c1"}},
    "metadata id": {"metadata": {"id": "m1", "chunk_id": "c1"}},
    "metadata chunk id": {"metadata": {"chunk_id": "c1", "doc_id": "d1"}},
    "metadata doc id": {"metadata": {"doc_id": "d1"}},
    "id of no kind": {"id": True, "metadata": {"id": 1.5}},
    "id is a list": {"id": ["a"]},
    "chunk id": {"chunk_id": "c1", "content": "one"},
    "doc id": {"doc_id": "d1", "metadata": {"chunk_id": "c1"}},
    "meta": {"meta": {"doc_id": "d1"}},
    "text alone": {"text": "one"},
    "node id": SimpleNamespace(node_id="n1"),
    "bare number": 1.0,
    "bare text": "d1",
    "passage": "One passage of some words.",
    "bytes id": {"id": b"doc:1", "content": "one", "vector_score": "0.1"},
    "float id": {"id": 7.0, "text": "one"},
    "Pinecone": {"id": "c1", "score": 0.5, "metadata": {"text": "one"}},
    "Qdrant": SimpleNamespace(id="c1", score=0.5, payload={"content": "one"}),
    "Qdrant of LangChain": SimpleNamespace(id="c1", score=0.5, payload={"page_content": "one", "metadata": {}}),
    "Elasticsearch": {"_id": "c1", "_score": 0.5, "_source": {"text": "one", "page": 7}},
    "Milvus": {"id": 451, "distance": 0.2, "entity": {"text": "one", "chunk_id": "c1"}},
    "Vespa": {"id": "id:ns:doc::1", "relevance": 0.5, "fields": {"text": "one"}},
    "Typesense": {"document": {"id": "7", "text": "one"}, "text_match": 10},
    "Bedrock": {"content": {"text": "one"}, "location": {"s3Location": {"uri": "s3://b/a.pdf"}}, "score": 0.7},
    "Azure": {"chunk_id": "a1", "parent_id": "p", "chunk": "one", "@search.score": 1.5},
    "Weaviate": SimpleNamespace(uuid=uuid.UUID(int=2), properties={"content": "one"}, metadata=None),
    "pair": (SimpleNamespace(id="d1", page_content="one"), 0.5),
    "tuple of id and text": ("d1", "one"),
    "tuple of three": ("d1", "one", 0.5),
    "named tuple": Passage("d1", "one"),
    "named tuple with score": Scored("d1", "one", 0.5),
    "similarity": {"chunk_id": "c1", "passage": "one", "similarity": 0.5},
    "score is text": {"id": "d1", "score": "0.5"},
    "score is true": {"id": "d1", "score": True},
    "score is not a number": {"id": "d1", "score": float("nan")},
    "score is infinite": {"id": "d1", "score": float("inf")},
    "half a pair": {"id": "\ud83d", "text": "\ud83d"},
    "source alone": {"metadata": {"source": "a.pdf", "page": 3}, "page_content": "one"},
    "title and url": {"title": "A title", "url": "https://docs.example/a"},
    "raises": type("Blocked", (), {"text": property(lambda self: 1 / 0), "id": "d1"})(),
}
SHAPES |= family("document", {name: {"answer": "yes", "documents": [value]} for name, value in ONE_DOCUMENT.items()})
SHAPES |= family("recorded document", ONE_DOCUMENT, lambda value: recording(retrieved=[value]))
SHAPES |= family(
    "retrieved document", {name: {"answer": "yes", "retrieved": [value]} for name, value in ONE_DOCUMENT.items()}
)
SHAPES |= family(
    "documents",
    {
        "one has no id": {"answer": "yes", "documents": [{"id": "d1", "text": "one"}, {"text": "two"}]},
        "twice the same": {"answer": "yes", "documents": [DICTS[0], DICTS[0]]},
        "many": {"answer": "yes", "documents": [{"id": f"d{n}", "text": "t"} for n in range(1200)]},
        "dict of documents": {"answer": "yes", "documents": {"d1": "one", "d2": "two"}},
        "set of ids": {"answer": "yes", "retrieved_ids": {"d1"}},
        "nested lists": {"answer": "yes", "documents": [DICTS]},
        "with a null": {"answer": "yes", "documents": [None, *DICTS]},
        "candidates too": {"answer": "yes", "documents": DICTS, "candidates": [*DICTS, {"id": "d3"}]},
        "ids and contexts": {"answer": "yes", "retrieved_ids": ["d1"], "contexts": ["a passage"]},
        "texts of some scripts": {"answer": "yes", "sources": ["罗洛统治诺曼底。" * 4, "Annual report 2023"]},
        "file names": {"answer": "yes", "sources": ["a.pdf", "b.pdf#3"]},
        "a generator": {"answer": "yes", "documents": (document for document in DICTS)},
    },
)

# --- citations and marks ----------------------------------------------------------------------------------------------

CITED: dict[str, Any] = {
    "list": ["d1"],
    "tuple": ("d1", "d2"),
    "set": {"d1"},
    "empty": [],
    "none": None,
    "text": "d1",
    "text of two": "d1, d2",
    "numbers": [1, 2],
    "number beyond": [9],
    "texts of numbers": ["1", "[2]"],
    "objects": [{"id": "d1", "start": 0}],
    "documents": [DICTS[1]],
    "nested metadata": [{"metadata": {"id": "d2"}}],
    "doc id": [{"doc_id": "d1"}],
    "document ids": [{"document_ids": ["d1", "d2"], "text": "yes"}],
    "pairs": [("d1", 0.5)],
    "titles": ["A title"],
    "dict": {"d1": "yes"},
    "true": True,
    "nulls": [None, "d1"],
    "twice": ["d1", "d1"],
    "strangers": ["x9"],
}
SHAPES |= family(
    "citations", {name: {"answer": "yes", "documents": DICTS, "citations": value} for name, value in CITED.items()}
)
SHAPES |= family(
    "recorded citations", CITED, lambda value: recording({"answer": "yes", "documents": DICTS}, citations=value)
)
SHAPES |= family(
    "sources", {name: {"answer": "yes", "documents": DICTS, "sources": value} for name, value in CITED.items()}
)
MARKS = (
    *(
        "Yes [2].",
        "Yes [1][2].",
        "Yes [1, 2].",
        "Yes [1-2].",
        "Yes [^1].",
        "Yes (2).",
        "Yes【1】.",
        "Yes【4:1†source】.",
    ),
    *("Yes [d2].", "Yes [9].", "Yes [0].", "Yes.", "Yes [ 1 ].", "Yes [doc 1].", "Yes [Source: 1]", "Yes ¹.", "Yes [1"),
    *("see [1](https://docs.example)", "x[1] = 2", "Yes.\n\nSources:\n[1] A title", "Yes [d1, d2].", "(d1)"),
)
SHAPES |= family("marks", {mark: {"answer": mark, "documents": DICTS} for mark in MARKS})
SHAPES |= family("marks without documents", {mark: mark for mark in MARKS[:10]})

# --- extract, id_from, question ---------------------------------------------------------------------------------------

DEEP = {"out": {"text": "yes"}, "found": [{"ref": "d1", "t": "one"}, {"ref": "d2"}], "cited": ["d1"], "v": "i1"}
PATHS = {"claim": "out.text", "retrieved": "found", "citations": "cited", "index_hash": "v", "session": "none"}


def refuse(_: Any) -> Any:
    raise KeyError("nothing")


EXTRACTS: dict[str, dict[str, Any]] = {
    "paths": {"extract": PATHS, "id_from": "ref"},
    "paths without ids": {"extract": PATHS},
    "path to nothing": {"extract": {"claim": "nowhere.at.all"}},
    "callable": {"extract": lambda result: {"claim": result["out"]["text"], "retrieved": ["d1"], "citations": ["d1"]}},
    "callable with all": {
        "extract": lambda result: {
            "claim": "yes",
            "qid": "a1",
            "session": "s",
            "build": "b",
            "model": "m",
            "user": "u",
            "sources": ["d1"],
            "documents": DICTS,
            "context": "one",
            "candidates": ["d1"],
        }
    },
    "raises": {"extract": refuse},
    "gives none": {"extract": lambda _: None},
    "gives a number": {"extract": lambda _: 7},
    "gives unknown fields": {"extract": lambda _: {"claim": "yes", "colour": "red"}},
}
for extract_name, told in EXTRACTS.items():
    SHAPES[f"extract: {extract_name}"] = returning(DEEP, **told)
SHAPES["extract: index paths"] = returning(("yes", DICTS), extract={"claim": "[0]", "retrieved": "[1]"})
for path in ("meta.key", "key", "metadata.key", "text", "[0]"):
    keyed = [{"id": "w", "key": "k1", "meta": {"key": "m1"}, "metadata": {"key": "x1"}, "text": "one"}]
    SHAPES[f"id_from: {path}"] = returning(
        {"answer": "yes", "citations": keyed, "documents": keyed, "candidates": keyed}, id_from=path
    )


def questioned(how: Any) -> Shape:
    def run(trace: Callable[..., Any]) -> object:
        @trace(question=how)
        def answer(tenant: str, request: Any) -> object:
            return "yes"

        return answer("a tenant", {"deep": {"asked": Q}, "list": [Q]})

    return run


SHAPES |= family(
    "question=",
    {
        "a parameter": "tenant",
        "a path": "request.deep.asked",
        "a path into a list": "request.list[0]",
        "nothing there": "request.nowhere",
        "callable": lambda tenant, request: f"{tenant} {request['deep']['asked']}",
        "raises": refuse,
        "gives a number": lambda *_: 7,
    },
    questioned,
)

# --- questions --------------------------------------------------------------------------------------------------------

NAMED = ("question", "query", "q", "prompt", "input", "user_input", "message", "text", "search", "frage", "content")
SHAPES |= family(
    "question named", {name: name for name in NAMED}, lambda name: taking(tenant="a tenant, by name", **{name: Q})
)
SHAPES |= family("question in a field", {name: {name: Q, "lang": "en"} for name in NAMED}, body)
USER = {"role": "user", "content": Q}
TURNS = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Was it?"}, USER]


class Ask(BaseModel):
    question: str
    top_k: int = 5


class AskV1(pydantic_v1.BaseModel):
    query: str


class Frage(BaseModel):
    frage: str
    sprache: str = "de"


class Turn(BaseModel):
    role: str
    content: str


class Chat(BaseModel):
    model: str = "a model"
    messages: list[Turn]


class Turns(RootModel[list[Turn]]):
    pass


@dataclasses.dataclass
class Plain:
    user_input: str


@dataclasses.dataclass(slots=True)
class Slotted:
    question: str


@attrs.define
class AttrsAsk:
    message: str


class Struct(msgspec.Struct):
    query: str


class Row(NamedTuple):
    tenant: str
    q: str


class CommonQuery:
    def __init__(self, q: str) -> None:
        self.q = q


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"question": Q}
    for _ in range(depth):
        found = {"inner": found}
    return found


LOOP: dict[str, Any] = {}
LOOP["loop"] = LOOP
SHAPES |= family(
    "body",
    {
        "pydantic": Ask(question=Q),
        "pydantic 1": AskV1(query=Q),
        "pydantic extras": OpenReply.model_validate({"question": Q}),
        "one sentence": Frage(frage=Q),
        "chat": Chat(messages=[Turn(role="user", content=Q), Turn(role="assistant", content="It is.")]),
        "root model": Turns([Turn(role="user", content=Q)]),
        "dataclass": Plain(Q),
        "slots": Slotted(Q),
        "attrs": AttrsAsk(Q),
        "msgspec": Struct(Q),
        "named tuple": Row("a tenant", Q),
        "namespace": SimpleNamespace(text=Q),
        "ordered dict": collections.OrderedDict(query=Q),
        "common query": CommonQuery(Q),
        "messages": {"input": {"messages": TURNS}},
        "haystack": {"data": {"prompt_builder": {"question": Q}}},
        "json body": {"body": '{"question": "Is it?"}'},
        "telegram": {"message": {"text": Q, "chat": {"id": 7}}},
        "prompt and messages": {"prompt": "Be brief.", "messages": TURNS},
        "turns": TURNS,
        "pairs": [("system", "Be brief."), ("human", Q)],
        "parts": [{"role": "user", "parts": [{"type": "text", "text": Q}]}],
        "input text": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": Q}]}],
        "tool result last": [USER, {"role": "user", "content": [{"type": "tool_result", "content": "42"}]}],
        "image and text": [{"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": Q}]}],
        "assistant alone": [{"role": "assistant", "content": "yes"}],
        "three deep": nested(2),
        "four deep": nested(3),
        "loop": LOOP,
        "wide": {**{f"field_{n}": {} for n in range(100)}, "last": {"question": Q}},
        "number": {"question": 7},
        "null": None,
        "empty text": "",
        "bytes": b"Is it?",
        "json text": '{"question": "Is it?"}',
        "iterator": iter([Q]),
        "gateway query": {"queryStringParameters": {"q": Q}, "body": None},
        "gateway body": {"queryStringParameters": None, "body": '{"question": "Is it?"}', "requestContext": {}},
        "asgi scope": {
            "type": "http",
            "method": "GET",
            "path": "/",
            "headers": [],
            "query_string": b"question=Is%20it?",
        },
        "wsgi environment": {"REQUEST_METHOD": "GET", "QUERY_STRING": "q=Is+it%3F"},
        "long": {"question": "Is it? " * 20_000},
        "properties": Properties(question=Q),
    },
    body,
)
SHAPES |= family(
    "arguments",
    {
        "labels then text": ("s-1", "ada", Q),
        "text and object": (Q, Frage(frage="A note, nothing else.")),
        "no text": (1, 2.5, None),
        "nothing": (),
        "two texts": (Q, "And now?"),
    },
    lambda args: taking(*args),
)

# --- what is said inside ----------------------------------------------------------------------------------------------

HALF = "half: \ud83d"
SHAPES |= family(
    "recorded",
    {
        "question": {"question": "Was it?"},
        "claim": {"claim": "no"},
        "qid": {"qid": "a1"},
        "unknown qid": {"qid": "x9"},
        "ids": {"retrieved": ["d1", "d2"]},
        "no documents": {"retrieved": []},
        "documents": {"retrieved": DICTS},
        "nodes": {"retrieved": NODES},
        "tuple": {"retrieved": ("d1", "d2")},
        "one text": {"retrieved": "d1"},
        "chroma": {"retrieved": {"ids": [["a", "b"]], "documents": [["one", "two"]], "distances": [[0.1, 0.2]]}},
        "candidates": {"candidates": [*DICTS, {"id": "d3"}]},
        "session": {"session": "s1"},
        "session of a user": {"session": "ada@example.org"},
        "user": {"user": "ada@example.org"},
        "opaque user": {"user": "u-17"},
        "model": {"model": "m-1"},
        "build and index": {"build": "b1", "index_hash": "i1"},
        "tags": {"tags": {"lang": "de", "customer": "17"}},
        "odd tags": {"tags": {"n": 7, 8: "x", "none": None, "list": ["a"]}},
        "halves": {
            "retrieved": [{"id": HALF, "text": HALF}],
            "tags": {HALF: HALF},
            "citations": [HALF],
            **dict.fromkeys(("question", "claim", "qid", "session", "model", "user", "build", "index_hash"), HALF),
        },
        "numbers for texts": {"qid": 7, "session": 8, "build": 9, "model": 1.5, "claim": 5},
    },
    lambda fields: recording(**fields),
)


def several(trace: Callable[..., Any]) -> object:
    @trace
    def answer(question: str) -> object:
        for ids in (["d1"], ["d2", "d3"]):
            ragmon.record(retrieved=ids, candidates=ids, tags={ids[0]: "x"})
        return {"answer": "yes [1]", "sources": ["d2"]}

    return answer(Q)


def staged(trace: Callable[..., Any]) -> object:
    @trace
    def answer(question: str) -> object:
        for name in ("retrieve", "rerank", "generate", "generate"):
            with ragmon.stage(name):
                pass
        return "yes"

    return answer(Q)


def nested_calls(trace: Callable[..., Any]) -> object:
    @trace
    def search(question: str) -> object:
        ragmon.record(retrieved=["d1"])
        return ["d1"]

    @trace
    def answer(question: str) -> object:
        return f"yes {search('inner question')}"

    return answer(Q)


def in_a_thread(carry: Callable[[Any], Any]) -> Shape:
    def run(trace: Callable[..., Any]) -> object:
        @trace
        def answer(question: str) -> object:
            thread = threading.Thread(target=carry(lambda: ragmon.record(retrieved=["d1"])))
            thread.start()
            thread.join()
            return "yes"

        return answer(Q)

    return run


def labelled(trace: Callable[..., Any]) -> object:
    @trace
    def answer(question: str) -> object:
        ragmon.label(ragmon.trace_id() or "", correct=True, rater="r1", comment="good")
        return "yes"

    return answer(Q)


SHAPES |= {
    "inside: several retrievals": several,
    "inside: stages": staged,
    "inside: a traced call": nested_calls,
    "inside: a thread": in_a_thread(lambda function: function),
    "inside: a thread with propagate": in_a_thread(ragmon.propagate),
    "inside: a label": labelled,
}

# --- texts that some policies change ----------------------------------------------------------------------------------

PERSONAL = {
    "mail": "Write to ada@example.org today.",
    "two mails": "ada@example.org and bob@example.org",
    "iban": "Pay to DE89 3704 0044 0532 0130 00.",
    "card": "It is 4111 1111 1111 1111.",
    "address": "At 192.0.2.7 and 2001:db8::1.",
    "key": "sk-abcDEF123ghiJKL456mnoPQR",
    "bearer": "Authorization: Bearer 0123456789abcdef0123",
    "url with password": "postgres://ada:s3cret@db.example.com/x",
    "phone": "Call +49 30 1234567 or (415) 555-2671.",
    "announced phone": "Tel: 555-1234",
    "private key": "-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKCAQEA0Z3V\n-----END PRIVATE KEY-----",
    "date": "On 2024-05-17 at 10:30.",
    "section": "See section 4.2.1.3 of ISO 8601:2004.",
    "amount": "$1,234,567.89",
    "identifier": "doc-2024-01-15-003 and 56ddde6b9a695914005b9628",
    "name": "Ms Lovelace said so.",
    "full width": "ａｄａ＠ｅｘａｍｐｌｅ．ｏｒｇ",
}


def personal(text: str) -> Shape:
    def run(trace: Callable[..., Any]) -> object:
        @trace
        def answer(question: str) -> object:
            ragmon.record(session=text, tags={"by": text}, user=text)
            return {"answer": text, "documents": [{"id": "d1", "text": text}], "citations": ["d1", text]}

        return answer(text)

    return run


SHAPES |= family("personal", PERSONAL, personal)
REFUSALS = (
    *("not in context", "Not in context.", "I don't know.", "I’m sorry, but I cannot answer that.", "No."),
    *("The documents do not say who painted it.", "Das steht nicht in den Unterlagen.", "Je ne sais pas."),
    *("No puedo responder a esa pregunta.", "我不知道。", "わかりません。", "Не знаю.", "لا أعرف.", "Non lo so."),
    *("I don't know why, but it opens at nine.", "NOT IN CONTEXT", "not in context, but yes", "N/A", "unknown"),
)
SHAPES |= family("refusal", {text: {"answer": text, "documents": DICTS} for text in REFUSALS})
