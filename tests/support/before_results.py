"""What decorated functions return, from seeds: `before_worker.py` runs this script.

A seed is one call of one function of one kind; `records` returns the lines of the trace log by kind and seed.
"""

from __future__ import annotations

import asyncio
import json
import random
import types
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path

import pydantic

import ragmon

TEXTS = (
    "It opens at 9 [d1].",
    "not in context",
    "I could not find that.",
    "Die Straße 42",
    "",
    "  ",
    "x" * 300,
    "日本 Ω",
)
IDS = ("d1", "d2", "d3#1", "Ω", "", 7, 1.5)
ANSWERS = ("answer", "claim", "response", "output", "result", "text", "content", "output_text", "message", "completion")
LISTS = (
    "sources",
    "documents",
    "source_documents",
    "retrieved",
    "contexts",
    "chunks",
    "context",
    "nodes",
    "hits",
    "docs",
)
ODD = (None, True, 0, -1.5, float("nan"), 10**30, b"bytes", {"a"}, frozenset(), object, 1j, range(3), ..., [], {}, ())


class Plain:
    """An object whose fields are in its `__dict__`."""

    def __init__(self, **fields):
        self.__dict__.update(fields)


class Slots:
    """An object without a `__dict__`."""

    __slots__ = ("answer", "citations", "sources")

    def __init__(self, answer, sources, citations):
        self.answer, self.sources, self.citations = answer, sources, citations


@dataclass
class Chunk:
    """A document as a dataclass."""

    id: object
    text: str
    score: float | None = None
    metadata: dict = field(default_factory=dict)


class Reply(pydantic.BaseModel):
    """An answer as a model, which may have more fields than are declared."""

    model_config = pydantic.ConfigDict(extra="allow")
    answer: str
    sources: list = []


Pair = namedtuple("Pair", "answer documents")  # noqa: PYI024 - as people write them


class Made:
    """Values of a seed."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def one(self, *values):
        """One of them; a method is called."""
        value = self.rng.choice(values)
        return value() if isinstance(value, types.MethodType) else value

    def text(self):
        return self.rng.choice(TEXTS)

    def odd(self):
        return self.rng.choice(ODD)

    def ids(self):
        return [self.rng.choice(IDS) for _ in range(self.rng.randint(0, 5))]

    def metadata(self):
        return self.rng.choice(
            ({}, {"chunk_id": "m1"}, {"id": "m2", "source": "a.md"}, {"doc_id": 5}, {"page": 1}, None)
        )

    def document(self):
        """A document, in one of the shapes that frameworks have."""
        rng, text, score = self.rng, self.text(), self.one(None, 0.5, 1, -0.25, "0.5")
        held = {"id": rng.choice(IDS), self.one("text", "content", "page_content"): text, "score": score}
        kinds = (
            held,
            held,
            {"metadata": self.metadata(), "page_content": text},
            {"document": held, "score": score},
            Chunk(rng.choice(IDS), text, None if isinstance(score, str) else score, self.metadata() or {}),
            Plain(page_content=text, metadata=self.metadata()),
            Plain(node=Plain(node_id="n1", text=text, metadata={}), score=0.5),
            (Plain(page_content=text, metadata={"id": "t1"}), 0.5),
            rng.choice(IDS),
            text,
            self.odd(),
        )
        return rng.choice(kinds)

    def documents(self):
        found = [self.document() for _ in range(self.rng.randint(0, 4))]
        return self.one(found, found, found, tuple(found), None, dict(enumerate(found)))

    def messages(self):
        """Messages of a chat."""
        rng = self.rng
        roles = ("user", "assistant", "system", "tool", "ai", "human")
        found = [
            {"role": rng.choice(roles), "content": self.one(self.text, self.parts)} for _ in range(rng.randint(1, 4))
        ]
        return self.one(found, [Plain(type=one["role"], content=one["content"]) for one in found])

    def parts(self):
        return [{"type": "text", "text": self.text()}, {"type": self.one("text", "image", "thinking"), "text": "more"}]

    def fields(self):
        """The members of an answer, under some of the usual names."""
        rng = self.rng
        found = {rng.choice(ANSWERS): self.one(self.text, self.text, self.text, self.messages, self.odd)}
        found[rng.choice(LISTS)] = self.documents()
        more = {
            "citations": self.one(self.ids(), None, "d1", [{"id": "d1"}], [1, 2]),
            "model": self.one("m1", None, 5),
            "error": self.one(None, "timeout", ""),
            "question": self.text(),
            "session": self.one("s1", 5),
            "index_hash": "i1",
            "build": self.one("b1", None),
            "scores": [0.5, 1],
            "retrieved_ids": self.ids(),
            "answer_json": {"claim": self.text(), "citations": self.ids()},
            "usage": {"tokens": 5},
            "extra": self.odd(),
        }
        return found | {name: more[name] for name in rng.sample(list(more), rng.choice((0, 1, 1, 2, 4)))}


def _dict(made):
    return made.fields()


def _mapping(made):
    return made.rng.choice((OrderedDict, types.MappingProxyType))(made.fields())


def _user_dict(made):
    return UserDict(made.fields())


def _nested(made):
    found = made.fields()
    for _ in range(made.rng.randint(1, 3)):
        found = {made.rng.choice(("result", "data", "output", "response", "state")): found, "ok": True}
    return found


def _object(made):
    return Plain(**made.fields())


def _dataclass(made):
    found = made.fields()
    return make_dataclass("Result", list(found))(**found)


def _slots(made):
    return Slots(made.text(), made.documents(), made.ids())


def _pydantic(made):
    more = {name: value for name, value in made.fields().items() if name not in ("answer", "sources")}
    return Reply(answer=made.text(), sources=[made.document()], **more)


def _named_tuple(made):
    return Pair(made.text(), made.documents())


def _tuple(made):
    found = [made.text(), made.documents(), made.one(made.ids, made.odd, made.fields)]
    made.rng.shuffle(found)
    return tuple(found[: made.rng.randint(1, 3)])


def _text(made):
    return made.text()


def _json_text(made):
    return json.dumps({"answer": made.text(), "citations": ["d1"]})


def _list(made):
    return made.one(made.documents, made.messages, made.ids)


def _odd(made):
    return made.odd()


def _completion(made):
    """As OpenAI's client returns it."""
    message = Plain(
        role="assistant", content=made.one(made.text, made.odd), tool_calls=made.one(None, []), refusal=None
    )
    whole = Plain(choices=[Plain(message=message, index=0, finish_reason="stop")], model="m1", id="c1")
    return made.one(whole, {"choices": [{"message": {"role": "assistant", "content": made.text()}}], "model": "m2"})


def _state(made):
    return {"messages": made.messages(), "context": made.documents()}


KINDS = {
    function.__name__.removeprefix("_"): function
    for function in (
        *(_dict, _mapping, _user_dict, _nested, _object, _dataclass, _slots, _pydantic, _named_tuple, _tuple, _text),
        *(_json_text, _list, _odd, _completion, _state),
    )
}


def plain_functions(made, value):
    """Functions as people write them, by name."""

    def plain(question, session=None):
        return value

    def recorded(question):
        told = {"retrieved": made.documents(), "claim": made.text(), "citations": made.ids(), "tags": {"lang": "de"}}
        for name in made.rng.sample(list(told), made.rng.randint(1, 4)):
            ragmon.record(**{name: told[name]})
        ragmon.record(candidates=["d1", "d2"], qid=made.one("a", None), build="b2")
        return value

    def extract(question):
        return value

    def raises(question):
        ragmon.record(retrieved=made.documents())
        raise made.rng.choice((ValueError, TimeoutError, KeyError))("it broke")

    def staged(question):
        with ragmon.stage("retrieve"), ragmon.stage("other"):
            return value

    async def coroutine(question):
        return value

    def method(question, limit=3):
        return value

    return {one.__name__: one for one in (plain, recorded, extract, raises, staged, coroutine, method)}


def streams(made, value):
    """Functions whose result comes in parts, by name."""

    def generator(question):
        yield from made.one(list("It opens"), ["a", None, 5], [{"answer": "x"}, value], [])

    def broken_generator(question):
        yield "half"
        raise ValueError("it broke")

    def iterator(question):
        return iter(["an ", "answer", value])

    async def async_generator(question):
        for part in ("an ", "answer"):
            yield part

    return {one.__name__: one for one in (generator, broken_generator, iterator, async_generator)}


def call_one(kind, seed):
    """Call a decorated function of one kind; its result or its error is of no interest."""
    made = Made(seed)
    value = KINDS[kind](made)
    functions = streams(made, value) if made.rng.random() < 0.3 else plain_functions(made, value)
    way = made.rng.choice([*functions, *["plain"] * 4] if "plain" in functions else list(functions))
    options = {"extract": {"claim": "answer", "retrieved": "sources"}} if way == "extract" else {}
    traced = ragmon.trace(kind, **options)(functions[way])
    if way == "method":
        traced = types.MethodType(traced, f"{seed}: what a method belongs to")
    arguments = () if way == "method" else (f"{seed}: {made.text()}",)
    try:
        found = traced(*arguments)
        if way == "coroutine":
            asyncio.run(_awaited(found))
        elif way == "async_generator":
            asyncio.run(_drained(found))
        elif way in ("generator", "broken_generator", "iterator"):
            list(found)
    except Exception:  # noqa: BLE001 - the application's own
        return


async def _drained(found):
    return [part async for part in found]


async def _awaited(found):
    return await found


def records(seeds):
    """Call a function for each seed; the lines of the trace log by kind and seed."""
    installed = ragmon.install("ragmon.toml")
    kinds, log, found = sorted(KINDS), Path("trace.jsonl"), {}
    with log.open(encoding="utf-8") as lines:
        for seed in seeds:
            kind = kinds[seed % len(kinds)]
            call_one(kind, seed)
            installed.flush()
            told = [json.loads(line) for line in lines]
            found.setdefault(kind, {})[seed] = [one for one in told if one.get("kind") != "totals"]
        installed.shutdown()
    return found
