"""Functions that application code calls: `label`, and inside a traced call `record`, `stage`, `trace_id`, `propagate`.

`label` only appends to a bounded queue; the worker exports the labels.

Imported on the request path: it imports only the standard library and ragmon's light modules.
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
from ragmon.capture.call import Call, Running, active, end_mark, running_call
from ragmon.capture.outcomes import shallow_copy
from ragmon.core.errors import warn_once

MOST: Final = 10_000
"""Labels that wait to be exported; above this, new ones are dropped and counted."""
DROPPED: Final = "dropped"

Given = dict[str, Any]


class LabelSender:
    """The queue of labels between the application and the worker.

    Args:
        taken: Whether labels are queued; False while nothing is monitored: then they are ignored.

    Attributes:
        dropped: Labels that were dropped here, by reason.
    """

    def __init__(self, *, taken: bool = True) -> None:
        self.dropped: Counter[str] = Counter()
        self._enabled = taken
        self._queue: deque[Given] = deque()

    def put(self, given: Given) -> None:
        """Queue a label."""
        if not self._enabled:
            return
        if len(self._queue) >= MOST:
            self.dropped[DROPPED] += 1
        else:
            self._queue.append(given)

    def take(self, most: int) -> list[Given]:
        """Remove and return the next labels, in order; called from one thread."""
        return [self._queue.popleft() for _ in range(min(most, len(self._queue)))]

    def put_back(self, given: Iterable[Given]) -> None:
        """Return labels that could not be exported to the head of the queue, to retry them."""
        self._queue.extendleft(reversed(list(given)))

    def __len__(self) -> int:
        return len(self._queue)


current: LabelSender | None = None
"""The label queue of this process; None before `ragmon.install`."""


def reset_labels_after_fork(was: LabelSender) -> LabelSender:
    """Make an empty queue in a forked child: the parent exports what waits in the old one."""
    global current  # noqa: PLW0603 - one process has one installation
    sender = LabelSender()
    if current is was:
        current = sender
    return sender


def detach_labels(these: LabelSender) -> None:
    """Remove the label queue of this process, if it is the given one."""
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
    """Rate an answer: when a user clicks, or when a reviewer checks it days later.

    Never blocks and never raises. The latest rating of each rater on an answer counts. Give at least one of `correct`,
    `answerable` and `relevant_ids`.

    Args:
        trace_id: The answer's trace, as `ragmon.trace_id()` returned it.
        correct: Right or wrong, or a score in [0, 1].
        answerable: Whether the question has an answer.
        relevant_ids: The documents that contain the answer.
        rater: Who rates; a stable pseudonym that does not identify the person.
        comment: The rater's free text, at most 10,000 characters.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     return {"answer": "At 9.", "trace_id": ragmon.trace_id()}
        >>> with ragmon.testing.capture_traces():
        ...     found = answer("When does it open?")
        ...     ragmon.label(found["trace_id"], correct=True, rater="user-17")
    """
    sender = current
    if sender is None:
        warn_once("ragmon.label was called before ragmon.install, and the label is lost")
        return
    rating = {"trace_id": trace_id, "rater": rater, "ts": time(), "correct": correct, "answerable": answerable}
    rating |= {"relevant_ids": relevant_ids, "comment": comment}
    sender.put(rating)


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
    model: str | None = None,
    user: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    """Add fields to the record of the running call.

    A field given again replaces the earlier value; candidates accumulate. Inside an unsampled call nothing is kept.
    Outside a traced call the use is counted in `ragmon_orphan_records_total`.

    Args:
        qid: The gold question's id.
        question: The question's text.
        retrieved: Documents in rank order: ids, `{"id", "text", "score"}`, or LangChain- and LlamaIndex-like objects.
        candidates: The same before reranking.
        claim: The answer's text.
        citations: The ids it cites.
        index_hash: The version of the index.
        build: The version of the application.
        session: The conversation's id.
        model: The model that answers, where no span tells it.
        user: Who asks; redacted before it leaves the process, unless `[capture] content` is `full`.
        tags: Key-value pairs by which results can be sliced.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     ragmon.record(retrieved=["d1", "d2"], tags={"customer": "17"})
        ...     return "At 9 [d1]."
        >>> with ragmon.testing.capture_traces() as records:
        ...     _ = answer("When does it open?")
        >>> records[0].retrieved_ids, records[0].tags
        (['d1', 'd2'], {'customer': '17'})
    """
    call = runtime.current_call("record")
    if call is None:
        return
    values = {
        "qid": qid,
        "question": question,
        "retrieved": retrieved,
        "claim": claim,
        "citations": citations,
        "index_hash": index_hash,
        "build": build,
        "session": session,
        "model": model,
        "user": user,
        "tags": tags,
    }
    fields = call.fields
    if fields is None:
        fields = call.fields = {}
    for name, value in values.items():
        if value is not None:
            fields[name] = shallow_copy(value)
    if candidates is not None:
        fields.setdefault("candidates", []).append(shallow_copy(candidates))


class stage:  # noqa: N801 - read as `with ragmon.stage("retrieve"):`
    """Time one stage of the running call.

    Args:
        name: `retrieve` and `generate` are exported, in milliseconds; other stages count only in the record's total.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     with ragmon.stage("retrieve"):
        ...         documents = ["d1"]
        ...     return {"answer": "At 9.", "documents": documents}
        >>> with ragmon.testing.capture_traces() as records:
        ...     _ = answer("When does it open?")
        >>> records[0].latency_ms.retrieve > 0
        True
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
    """Mark the traced calls inside as probes: gold questions that ragmon itself sends through the live pipeline.

    They are kept at any sample rate, counted separately and never included in user totals.

    Args:
        qid: The gold question's id.
    """
    running: Running = [qid]
    mark = active.set(running)
    try:
        yield
    finally:
        running[0] = None
        active.reset(mark)


def propagate(function: Callable[P, R]) -> Callable[P, R]:
    """Carry the running call into another thread.

    Tasks and `asyncio.to_thread` inherit it automatically; threads and executors do not.

    Args:
        function: The function that will run in the other thread.

    Returns:
        The function to hand to the thread. Outside a traced call it is the given one.

    Examples:
        >>> from concurrent.futures import ThreadPoolExecutor
        >>> import ragmon
        >>> def search(question):
        ...     ragmon.record(retrieved=["d1"])
        >>> @ragmon.trace
        ... def answer(question):
        ...     with ThreadPoolExecutor() as executor:
        ...         executor.submit(ragmon.propagate(search), question).result()
        ...     return "At 9."
        >>> with ragmon.testing.capture_traces() as records:
        ...     _ = answer("When does it open?")
        >>> records[0].retrieved_ids
        ['d1']
    """
    if running_call() is None:
        return function
    running = active.get()

    @functools.wraps(function)
    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        mark = active.set(running)
        try:
            return function(*args, **kwargs)
        finally:
            end_mark(mark)

    return carried


def trace_id() -> str | None:
    """The trace id of the running call; send it along with the answer, so that a rating can name it.

    Returns:
        32 hex digits; None outside a call, or if the call was not sampled.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace
        ... def answer(question):
        ...     return {"answer": "At 9.", "trace_id": ragmon.trace_id()}
        >>> with ragmon.testing.capture_traces() as records:
        ...     found = answer("When does it open?")
        >>> found["trace_id"] == records[0].trace_id
        True
    """
    call = running_call()
    return call.trace_id if isinstance(call, Call) else None
