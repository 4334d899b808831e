"""What code inside a traced call can say: `record`, `stage`, `trace_id`; and how its threads come to be inside."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar

from ragmon.capture import runtime
from ragmon.capture.calls import Call, Probing, active, leave, running
from ragmon.capture.outcomes import held

P = ParamSpec("P")
R = TypeVar("R")


def record(
    *,
    qid: str | None = None,
    question: str | None = None,
    retrieved: Any = None,
    candidates: Any = None,
    claim: str | None = None,
    citations: Any = None,
    index_hash: str | None = None,
    build: str | None = None,
    session: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Say something about the call that is running.

    A field given again replaces what was said before; candidates accumulate. Inside a call that is not sampled nothing
    is kept. Outside a traced call it is counted in `ragmon_orphan_records_total`.

    Args:
        qid: The gold question's id.
        question: The question's text.
        retrieved: Documents in rank order: ids, `{"id", "text", "score"}`, or LangChain- and LlamaIndex-like objects.
        candidates: The same before reranking.
        claim: The answer's text.
        citations: The ids it cites.
        index_hash: The version of the index.
        build: The version of the application.
        session: The conversation.
        tags: Slices.
    """
    call = runtime.inside("record")
    if call is None:
        return
    said = {
        "qid": qid,
        "question": question,
        "retrieved": retrieved,
        "claim": claim,
        "citations": citations,
        "index_hash": index_hash,
        "build": build,
        "session": session,
        "tags": tags,
    }
    fields = call.fields
    if fields is None:
        fields = call.fields = {}
    for name, value in said.items():
        if value is not None:
            fields[name] = held(value)
    if candidates is not None:
        fields.setdefault("candidates", []).append(held(candidates))


class stage:  # noqa: N801 - read as `with ragmon.stage("retrieve"):`
    """Time a part of the call: `with ragmon.stage("retrieve"): ...`.

    Args:
        name: `retrieve` and `generate` are exported; others travel with the record's total only.
    """

    __slots__ = ("_started", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._started = 0.0

    def __enter__(self) -> Self:
        self._started = perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        call = running()
        if isinstance(call, Call):
            if call.stages is None:
                call.stages = []
            call.stages.append((self.name, self._started, perf_counter()))


@contextmanager
def probe(qid: str) -> Iterator[None]:
    """Mark the traced calls inside as probes: gold questions ragmon itself sends through the live pipeline.

    They are kept whatever the sample rate, counted on their own and never part of user totals.

    Args:
        qid: The gold question.
    """
    mark = Probing(qid)
    token = active.set(mark)
    try:
        yield
    finally:
        mark.ended = True  # tasks that were started inside go on in this context
        active.reset(token)


def propagate(function: Callable[P, R]) -> Callable[P, R]:
    """Carry the call that runs here into another thread: `executor.submit(ragmon.propagate(search), question)`.

    Tasks and `asyncio.to_thread` inherit it by themselves; threads and executors do not.

    Args:
        function: What will run there.
    """
    mark = running()
    if mark is None:
        return function

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = active.set(mark)
        try:
            return function(*args, **kwargs)
        finally:
            leave(token)

    return carried


def trace_id() -> str | None:
    """The id of the call that is running, 32 hex digits; None outside one, or where it was not sampled."""
    call = running()
    return call.trace_id if isinstance(call, Call) else None
