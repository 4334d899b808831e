"""What a result holds is read; no property, descriptor or method of its class runs, whatever it is asked."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
import weakref
from typing import NamedTuple
from unittest.mock import MagicMock

import attrs
import haystack.dataclasses
import httpx
import msgspec
import numpy as np
import pandas as pd
import pydantic
import pytest
import requests
import werkzeug.local
import wrapt
from django.utils.functional import SimpleLazyObject, lazystr
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.schema import NodeWithScore, TextNode
from openai.types.responses import Response
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from pydantic_ai.messages import ModelResponse, TextPart

import ragmon
from ragmon.capture.objects import unread
from ragmon.testing import Collected, defaults
from tests.support.capturing import found, record_of

ran: list[str] = []
"""The code of results that ran."""


def note(value=None):
    """Stands in a class for code that would ask a server."""
    ran.append("code")
    return value


class Computed:
    answer = property(lambda self: note("computed"))
    documents = property(lambda self: note([]))


class Cached:
    @functools.cached_property
    def answer(self):
        return note("yes")


class Known(Cached):
    """As `Cached`, after the application has read it."""

    def __init__(self):
        self.__dict__["answer"] = "yes"


class Column:
    """A descriptor, as object mappers have them."""

    def __set_name__(self, owner, name):
        self.name = name

    def __get__(self, instance, owner=None):
        return self if instance is None else note(instance.row[self.name])

    def __set__(self, instance, value):
        note()


class Mapped:
    answer = Column()

    def __init__(self):
        self.row = {"answer": "computed"}


class Delegating:
    def __getattr__(self, name):
        return note(Delegating())


class Intercepting:
    def __init__(self):
        self.answer = "yes"

    def __getattribute__(self, name):
        return note(object.__getattribute__(self, name))


class Posing:
    """An object that says it is of another class."""

    answer = "no text of its own"

    @property
    def __class__(self):
        return note(str)


class Hidden:
    """An object whose class replaces the dictionary of its instances."""

    @property
    def __dict__(self):
        return note({"answer": "computed"})


@dataclasses.dataclass
class Reply:
    raw: str
    text = property(lambda self: note(self.raw))


@attrs.define
class Slotted:
    answer: str
    documents = property(lambda self: note([]))


class Struct(msgspec.Struct):
    answer: str
    text = property(lambda self: note(""))


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    answer: str

    @pydantic.computed_field
    def documents(self) -> list[str]:
        return note([])

    @property
    def citations(self):
        return note([])


class Answered(NamedTuple):
    answer: str
    sources: list[object]


class Pair(Answered):
    __slots__ = ()
    documents = property(lambda self: note([]))

    def __iter__(self):
        return note(iter(()))

    def __getitem__(self, index):
        return note("computed")


class OddDict(dict):
    """A dictionary that computes whatever it is asked for."""

    get = __getitem__ = __missing__ = lambda self, name, default=None: note("computed")
    items = keys = values = __iter__ = lambda self: note(iter(()))
    __len__ = lambda self: note(0)  # noqa: E731 - one line for all of them
    __contains__ = lambda self, name: note(True)  # noqa: E731


class OddList(list):
    __iter__ = __reversed__ = lambda self: note(iter(()))
    __getitem__ = lambda self, index: note("computed")  # noqa: E731
    __len__ = lambda self: note(0)  # noqa: E731
    __bool__ = lambda self: note(False)  # noqa: E731


class OddText(str):
    __slots__ = ()
    __str__ = encode = isascii = strip = __len__ = lambda self, *_: note("computed")
    __eq__ = lambda self, other: note(False)  # noqa: E731
    __hash__ = lambda self: note(7)  # noqa: E731


class OddNumber(int):
    __str__ = __repr__ = __int__ = __index__ = lambda self: note("computed")


class Lookup(collections.UserDict):
    def __getitem__(self, name):
        return note("computed")

    def get(self, name, default=None):
        return note("computed")


class Remote(collections.abc.Sequence):
    """A list that lies elsewhere, as that of a queue or a table."""

    def __len__(self):
        return note(3)

    def __getitem__(self, index):
        return note({"id": "d1"})


class Meta(type):
    """A class of classes that interferes with its classes."""

    __name__ = property(lambda cls: note("Chunk"))

    def __instancecheck__(cls, instance):
        return note(True)


class Odd(metaclass=Meta):
    def __init__(self):
        self.answer = "yes"


class Kind(enum.Enum):
    ANSWER = "yes"
    text = property(lambda self: note("computed"))


class Grade(enum.StrEnum):
    YES = "yes"


class Provided:
    """As of zope.interface: the interfaces of an object are looked up by a descriptor."""

    __providedBy__ = __provides__ = Column()
    response = Column()

    def __init__(self):
        self.claim = "yes"


class Tensor:
    """As of torch: a length and entries that are computed."""

    def __len__(self):
        return note(2)

    def __iter__(self):
        return note(iter(["d1", "d2"]))

    def __array__(self, *_):
        return note(np.array(["d1", "d2"]))

    def __bool__(self):
        raise RuntimeError("more than one value is ambiguous")


TARGET = Computed()
READ = {
    "cached_property that was read": (Known, "yes"),
    "__getattribute__": (Intercepting, "yes"),
    "attrs": (lambda: Slotted("yes"), "yes"),
    "msgspec": (lambda: Struct("yes"), "yes"),
    "pydantic": (lambda: Model(answer="yes"), "yes"),
    "pydantic's extras": (lambda: {"result": Model.model_construct(reply="yes")}, "yes"),
    "named tuple": (lambda: Pair("yes", []), "yes"),
    "dict": (lambda: OddDict(answer="yes"), "yes"),
    "OrderedDict": (lambda: collections.OrderedDict(answer="yes"), "yes"),
    "list of parts": (lambda: {"answer": OddList(["y", {"text": "es"}])}, "yes"),
    "text": (lambda: {"answer": OddText("yes")}, "yes"),
    "number": (lambda: {"answer": OddNumber(7)}, "7"),
    "UserDict": (lambda: Lookup(answer="yes"), "yes"),
    "mapping proxy": (lambda: types.MappingProxyType(OddDict(answer="yes")), "yes"),
    "metaclass": (Odd, "yes"),
    "enumeration of texts": (lambda: {"answer": Grade.YES}, "yes"),
    "zope": (Provided, "yes"),
    "namespace": (lambda: types.SimpleNamespace(answer="yes", text=Computed()), "yes"),
}
UNKNOWN = {
    "property": Computed,
    "cached_property": Cached,
    "descriptor": Mapped,
    "__getattr__": Delegating,
    "__class__": Posing,
    "__dict__": Hidden,
    "property of a dataclass": lambda: Reply("yes"),
    "iterator inside": lambda: {"answer": map(note, ["yes"])},
    "generator inside": lambda: {"answer": (note(word) for word in ["yes"])},
    "custom sequence": lambda: {"answer": Remote()},
    "proxy of wrapt": lambda: wrapt.ObjectProxy(TARGET),
    "proxy of werkzeug": lambda: werkzeug.local.LocalProxy(lambda: note(TARGET)),
    "lazy object of Django": lambda: SimpleLazyObject(lambda: note(TARGET)),
    "lazy translation of Django": lambda: {"answer": lazystr(TARGET)},
    "weak proxy": lambda: weakref.proxy(TARGET),
    "enumeration": lambda: {"answer": Kind.ANSWER},
    "mock": lambda: MagicMock(side_effect=note),
    "mock inside": lambda: {"answer": MagicMock(name="answer")},
    "tensor": lambda: {"answer": Tensor()},
    "httpx": lambda: httpx.Response(200, stream=httpx.ByteStream(b"yes")),
    "requests": requests.Response,
}


@pytest.fixture(autouse=True)
def _nothing_ran():
    ran.clear()
    unread.clear()


@pytest.mark.parametrize("name", READ)
def test_what_a_result_holds_is_its_answer(name):
    make, expected = READ[name]
    result = make()
    ran.clear()
    assert (found(result)[0], ran) == (expected, [])


def test_what_a_result_computes_is_unknown_and_costs_no_other_field():
    for name, make in UNKNOWN.items():
        result = {"result": make(), "documents": [{"id": "d1", "text": "one"}], "session": "s1"}
        ran.clear()
        record = record_of(result)
        assert (record.answer_json.claim, record.retrieved_ids, record.session) == (None, ["d1"], "s1"), name
        assert (record.q, ran, dict(unread)) == ("q", [], {}), name


def test_a_result_that_computes_all_of_itself_is_left_alone():
    """Some of these are iterators to Python: such a call lasts until nobody holds its result."""
    for name, make in UNKNOWN.items():
        result = make()
        ran.clear()
        with ragmon.testing.capture_traces() as records:
            ragmon.trace(lambda question: result)("q")  # noqa: B023 - called in this turn
        assert [record.answer_json and record.answer_json.claim for record in records] == [None], name
        assert ran == [], name


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_argument_a_document_and_a_tag_run_no_code_either(name):
    given = UNKNOWN[name]()
    ran.clear()

    @ragmon.trace(sample=1.0)
    def answer(context, question):
        ragmon.record(retrieved=[given], candidates=given, citations=given, tags={"tag": given}, session=given)
        return "yes"

    @ragmon.trace(sample=1.0, question="context.body.question", id_from="meta.key")
    def by_paths(context):
        ragmon.record(retrieved=[{"meta": given}])
        return "yes"

    @ragmon.trace(sample=1.0)
    def stream(question):
        yield from ("yes", given)

    with ragmon.testing.capture_traces() as records:
        answer(given, "Is it?")
        by_paths(given)
        list(stream("Is it?"))
    assert [record.q for record in records] == ["Is it?", None, "Is it?"]
    assert [record.answer_json.claim for record in records] == ["yes"] * 3
    assert (records[0].retrieved_ids, records[0].tags, records[0].session, ran) == (None, {}, None, [])


@pytest.mark.parametrize(
    "make",
    [
        OddList,
        collections.deque,
        collections.UserList,
        lambda documents: dict(enumerate(documents)).values(),
        lambda documents: np.array(documents, dtype=object),
        lambda documents: tuple(OddDict(document) for document in documents),
        lambda documents: [types.MappingProxyType(document) for document in documents],
    ],
)
def test_collections_that_lie_in_memory_are_documents(make):
    documents = make([{"id": "d1", "text": "one"}, {"id": "d2", "text": "two"}])
    ran.clear()
    assert found({"answer": "yes", "documents": documents})[2:] == (["d1", "d2"], ["one", "two"])
    assert ran == []


class OwnFrame(pd.DataFrame):
    def head(self, n=5):
        return note(super().head(n))


@pytest.mark.parametrize("make", [OwnFrame, lambda _: Remote(), lambda _: Tensor()])
def test_other_collections_are_no_documents_and_a_callable_reads_them(make):
    documents = make([{"id": "d1", "text": "one"}])
    assert found({"answer": "yes", "documents": documents})[2:] == (None, None)
    assert ran == []
    frame = OwnFrame([{"id": "d1", "text": "one"}])
    rows = found({"found": frame}, extract=lambda result: {"retrieved": result["found"].to_dict("records")})
    assert rows[2:] == (["d1"], ["one"])


def test_reading_adds_nothing_to_a_dictionary_that_makes_what_it_lacks():
    result = collections.defaultdict(lambda: note({}), answer="yes")
    assert found(result)[0] == "yes"
    assert (list(result), ran) == (["answer"], [])


NODES = [NodeWithScore(node=TextNode(id_="d1", text="one", metadata={"key": "k1"}), score=0.5)]
OPENAI = {"id": "r", "created_at": 1, "model": "m", "object": "response", "parallel_tool_calls": False, "tools": []}
SAID = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
PART = {"type": "output_text", "text": "yes", "annotations": []}
OPENAI |= {"tool_choice": "auto", "output": [{**SAID, "content": [PART]}]}


@pytest.mark.parametrize(
    ("result", "path"),
    [
        (ChatResponse(message=ChatMessage(role="assistant", content="yes")), "message.content"),
        (haystack.dataclasses.ChatMessage.from_assistant("yes"), "text"),
        (Response.model_validate(OPENAI), "output_text"),
        (ModelResponse(parts=[TextPart("yes")]), "text"),
        (NodeWithScore(node=TextNode(text="yes")), "text"),
        (KeyValue(value=AnyValue(array_value=ArrayValue(values=[AnyValue(string_value="yes")]))), "value.array_value"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_properties_of_known_types_are_read_by_their_data(result, path):
    """Also by a path of the decorator, which names the property."""
    path = f"{path}.values[0].string_value" if type(result) is KeyValue else path
    assert found(result, extract={"claim": path})[0] == "yes"
    assert found({"inner": result}, extract={"claim": f"inner.{path}"})[0] == "yes"


def test_paths_to_ids_of_known_types():
    for path in ("node_id", "node.node_id", "node.id_"):
        assert found({"documents": NODES}, id_from=path)[2:] == (["d1"], ["one"])
    assert found({"documents": NODES}, id_from="metadata.key")[2] == ["k1"]


def test_tags_are_texts_numbers_and_truths():
    tags = {"a": "x", "b": 7, "c": 0.5, "d": True, "e": None, "f": Grade.YES, "g": np.int64(3), "h": Computed()}

    @ragmon.trace
    def answer(question):
        ragmon.record(tags=tags)
        return "yes"

    with ragmon.testing.capture_traces() as records:
        answer("q")
    assert records[0].tags == {"a": "x", "b": "7", "c": "0.5", "d": "true", "f": "yes", "g": "3"}


# --- what cannot be read ----------------------------------------------------------------------------------------------


class Colliding:
    """A key that lands where another one lands, and cannot be compared."""

    def __init__(self, name):
        self.name = name

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        raise LookupError(self.name)


@pytest.mark.parametrize(
    ("result", "field", "expected"),
    [
        (
            {"answer": {Colliding("claim"): 1}, "documents": [{"id": "d1", "text": "one"}]},
            "claim",
            (None, ["d1"], ["one"]),
        ),
        ({"answer": "yes", "documents": [{"id": "d1"}, {Colliding("node"): 1}]}, "documents", ("yes", None, None)),
        ({"answer": "yes", "documents": [{"id": "d1", Colliding("text"): 1}]}, "contexts", ("yes", ["d1"], None)),
        ({"answer": "yes", "documents": [{"text": "one", Colliding("pk"): 1}]}, "ids", ("yes", None, ["one"])),
    ],
    ids=["answer", "document", "text of a document", "id of a document"],
)
def test_a_field_that_cannot_be_read_is_unknown_and_counted_and_the_others_stay(result, field, expected):
    record = record_of(result)
    assert (record.answer_json.claim, record.retrieved_ids, record.contexts) == expected
    assert dict(unread) == {(field, "raised"): 1}
    assert record.q == "q"


def test_fields_that_cannot_be_read_are_counted_in_the_metrics_of_the_process(caplog):
    installation = ragmon.install(defaults(), sink=Collected())
    try:
        ragmon.trace(sample=1.0, extract=lambda result: {"claim": result.text})(lambda question: "a secret")("q")
        assert installation.flush(30)
        assert installation.captured().unread == {("result", "raised"): 1}
    finally:
        installation.shutdown()
    assert "AttributeError at test_held_results.py" in caplog.text
    assert "secret" not in caplog.text
