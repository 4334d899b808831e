"""What people say of answers, told by the application: taken at once, handed on by the worker.

Imported on the request path: the standard library and ragmon's words, nothing else.

What code inside a traced call can say: `record`, `stage`, `trace_id`; and how its threads come to be inside.
"""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, time
from types import TracebackType
from typing import Any, Final, ParamSpec, Self, TypeVar

from ragmon.capture import runtime
from ragmon.capture.call import Call, ProbeContext, active, end_call, running_call
from ragmon.capture.outcomes import shallow_copy
from ragmon.core.log import warn_once

MOST: Final = 10_000
"""Labels that wait to be handed on; beyond them new ones are dropped and counted."""
DROPPED: Final = "dropped"

Given = dict[str, Any]


class LabelSender:
    """Labels on their way out of the process.

    Args:
        taken: Labels are taken; if not, nothing is monitored, and they are passed over.

    Attributes:
        lost: Labels that were lost here, by reason.
    """

    def __init__(self, *, taken: bool = True) -> None:
        self.lost: Counter[str] = Counter()
        self._taken = taken
        self._queue: deque[Given] = deque()

    def put(self, given: Given) -> None:
        """Take a label."""
        if not self._taken:
            return
        if len(self._queue) >= MOST:
            self.lost[DROPPED] += 1
        else:
            self._queue.append(given)

    def take(self, most: int) -> list[Given]:
        """The next labels, in order; called from one thread."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def put_back(self, given: Iterable[Given]) -> None:
        """Labels that could not be handed on, to be tried again."""
        self._queue.extendleft(reversed(list(given)))

    def __len__(self) -> int:
        return len(self._queue)


current: LabelSender | None = None
"""Where labels go in this process; None before `ragmon.install`."""


def reset_labels_after_fork(was: LabelSender) -> LabelSender:
    """Other ones for a forked child: what waits is its parent's to hand on."""
    global current  # noqa: PLW0603 - one process has one installation
    found = LabelSender()
    if current is was:
        current = found
    return found


def detach_labels(these: LabelSender) -> None:
    """Take no more, where these are the ones that take."""
    global current  # noqa: PLW0603 - as above
    if current is these:
        current = None


def label(
    trace_id: str,
    *,
    correct: bool | float | None = None,
    answerable: bool | None = None,
    relevant_ids: Iterable[str] | None = None,
    rater: str,
    comment: str | None = None,
) -> None:
    """Say what somebody thinks of an answer: when a user clicks, or when a reviewer has had a look, days later.

    Never blocks and never raises. The last word of each rater on an answer counts.

    Args:
        trace_id: The answer's trace, as `ragmon.trace_id()` gave it.
        correct: Right or wrong, or a share of it in [0, 1].
        answerable: Whether the question has an answer.
        relevant_ids: The documents that hold it.
        rater: Who says so; a name that is stable and tells nobody who it is.
        comment: In their own words.
    """
    taking = current
    if taking is None:
        warn_once("ragmon.label was called before ragmon.install, and the label is lost")
        return
    told = {"trace_id": trace_id, "rater": rater, "ts": time(), "correct": correct, "answerable": answerable}
    told |= {"relevant_ids": relevant_ids, "comment": comment}
    taking.put(told)


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
    call = runtime.current_call("record")
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
            fields[name] = shallow_copy(value)
    if candidates is not None:
        fields.setdefault("candidates", []).append(shallow_copy(candidates))


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
        call = running_call()
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
    mark = ProbeContext(qid)
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
    mark = running_call()
    if mark is None:
        return function

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        token = active.set(mark)
        try:
            return function(*args, **kwargs)
        finally:
            end_call(token)

    return carried


def trace_id() -> str | None:
    """The id of the call that is running, 32 hex digits; None outside one, or where it was not sampled."""
    call = running_call()
    return call.trace_id if isinstance(call, Call) else None
