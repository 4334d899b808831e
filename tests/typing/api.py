"""What type checkers say of traced functions; `make check` runs mypy over this file, nothing runs the code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, assert_type

import ragmon
from ragmon.core.record import Record


@ragmon.trace
def bare(question: str, *, limit: int = 5) -> dict[str, str]:
    return {"answer": f"{question} {limit}"}


@ragmon.trace(name="support", sample=0.05, question="question", extract={"claim": "answer"}, id_from="metadata.id")
async def called(question: str) -> list[str]:
    return [question]


@ragmon.trace(extract=lambda result: {"claim": result}, question=lambda text, n: text * n)
def with_callables(text: str, n: int) -> str:
    return text * n


@ragmon.trace(reduce=lambda items: {"claim": " ".join(items)})
def streamed(question: str) -> Iterator[str]:
    yield question


@ragmon.trace
async def streamed_async(question: str) -> AsyncIterator[bytes]:
    yield question.encode()


@ragmon.judge("brief")
def brief(record: Record) -> float:
    return float(record.q is not None)


@ragmon.judge("kind")
async def kind(record: Record) -> ragmon.Verdict | None:
    return ragmon.Verdict(1.0, "it is") if record.q else None


class Service:
    @ragmon.trace
    def answer(self, question: str) -> int:
        return len(question)

    @classmethod
    @ragmon.trace(name="support")
    def of_class(cls, question: str) -> str:
        return question

    @staticmethod
    @ragmon.trace
    def of_nothing(question: str) -> float:
        return float(len(question))


def results() -> None:
    assert_type(bare("Is it?", limit=3), dict[str, str])
    assert_type(asyncio.run(called("Is it?")), list[str])
    assert_type(Service().answer("Is it?"), int)
    assert_type(Service.of_class("Is it?"), str)
    assert_type(Service.of_nothing("Is it?"), float)
    assert_type(with_callables("Is it?", 2), str)
    as_written: Callable[[str], Coroutine[Any, Any, list[str]]] = called
    asyncio.run(as_written("Is it?"))
    assert_type(list(streamed("Is it?")), list[str])
    assert_type(streamed_async("Is it?"), AsyncIterator[bytes])
    assert_type(ragmon.propagate(bare)("Is it?"), dict[str, str])
    assert_type(ragmon.trace_id(), str | None)


def mistakes() -> None:
    bare()  # type: ignore[call-arg]
    bare(7)  # type: ignore[arg-type]
    bare("Is it?", limits=3)  # type: ignore[call-arg]
    Service().answer("Is it?", 5)  # type: ignore[call-arg]
    ragmon.trace(sample="often")  # type: ignore[call-overload]
    ragmon.record(relevant=["a"])  # type: ignore[call-arg]
