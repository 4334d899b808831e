"""The decorator `@ragmon.trace`, and what application code calls: `record`, `stage`, `label`, `trace_id`, `propagate`.

A traced function draws, reads the clock, marks its context, runs the function, looks at the outside of the result, and
counts. That is all for a usual call that lost the draw, and most of what ragmon costs. `label` only appends to a
bounded queue; the worker exports the labels.

Imported on the request path: it imports only the standard library and ragmon's light modules.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections import Counter, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter, time
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar, overload

from ragmon.capture import call as calls  # by its name, as a module and not its objects can be pickled
from ragmon.capture.call import (
    UNSAMPLED,
    Call,
    Plan,
    Running,
    TracedFunction,
    active,
    count_outcome,
    end_mark,
    prepare,
    raised,
    recorded_call,
    running_call,
    shallow_copy,
    start_call,
)
from ragmon.capture.streams import StreamTracker, finish, trace_async_generator, trace_generator
from ragmon.core.constants import DISABLED, ON, REST
from ragmon.core.errors import RagmonError, nearest, shorten, warn_once
from ragmon.core.text import Path, parse

P = ParamSpec("P")
R = TypeVar("R")
Extract = Mapping[str, str] | Callable[[Any], Mapping[str, Any]]

FIELDS: Final = (
    "qid",
    "question",
    "retrieved",
    "candidates",
    "claim",
    "citations",
    "index_hash",
    "build",
    "session",
    "model",
    "user",
    "tags",
)
"""The fields `extract` may return; `ragmon.record` takes the same names."""
_TRACED_FUNCTION: Final = "__ragmon__"


@overload
def trace(name: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def trace(
    name: str | None = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    reduce: Callable[[list[Any]], Any] | None = None,
    id_from: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def trace(
    name: Any = None,
    sample: float | None = None,
    question: str | Callable[..., Any] | None = None,
    extract: Extract | None = None,
    reduce: Callable[[list[Any]], Any] | None = None,
    id_from: str | None = None,
) -> Any:
    """Trace a pipeline function; usable with or without arguments.

    The function behaves as before: same result, same errors, same signature. A traced function called inside another is
    part of the outer call. A function that gets one question after the other, through a WebSocket or a queue, stays
    untraced. The caller may change a returned dict or list at once, but nested objects only after the worker has read
    them (some milliseconds).

    Args:
        name: The pipeline's name; default: the configured one.
        sample: Share of its calls to keep, in [0, 1]; default: the configured rate, `[sampling] rate`.
        question: Where the question is: a parameter's name, a dotted path from one, or a callable that gets the
            call's arguments; default: the parameter or field with a usual name, else the first text.
        extract: Where the answer is: dotted paths into the result by field of `ragmon.record`, or a callable that
            gets the result and returns such fields; default: every known shape.
        reduce: Makes a result of the list of items of a stream; default: what its events say, if they are understood.
        id_from: Dotted path from a document to its id; default: `[capture] id_from`, else `id`, then `id`,
            `chunk_id` and `doc_id` of its metadata.

    Raises:
        RagmonError: An argument is not valid, or the decorated object cannot be traced.

    Examples:
        >>> import ragmon
        >>> @ragmon.trace(sample=1.0)
        ... def answer(question: str) -> dict:
        ...     return {"answer": "not in context", "citations": []}
        >>> with ragmon.testing.capture_traces():
        ...     answer("Where is the harbour?")["answer"]
        'not in context'
    """
    if callable(name) or isinstance(name, (staticmethod, classmethod)):
        return _wrap(name, TracedFunction)
    if name is not None and not (isinstance(name, str) and name):
        raise RagmonError(f"name is {shorten(name)}", hint='the name of a pipeline, such as "support"')
    is_share = isinstance(sample, int | float) and not isinstance(sample, bool) and 0 <= sample <= 1
    if sample is not None and not is_share:
        raise RagmonError(f"sample is {shorten(sample)}", hint="a share of calls between 0 and 1")
    if reduce is not None and not callable(reduce):
        raise RagmonError(f"reduce is {shorten(reduce)}", hint="a callable that makes a result of a list of items")
    make = functools.partial(
        TracedFunction,
        name=name,
        sample=sample,
        question=question if question is None or callable(question) else parse(question, "question"),
        extract=extract if extract is None or callable(extract) else _paths(extract),
        reduce=reduce,
        id_from=None if id_from is None else parse(id_from, "id_from"),
    )
    return functools.partial(_wrap, make=make)


def _paths(extract: Any) -> dict[str, Path]:
    if not isinstance(extract, Mapping):
        hint = 'paths by field, {"claim": "answer"}, or a callable on the result'
        raise RagmonError(f"extract is {shorten(extract)}", hint=hint)
    unknown = next((field for field in extract if field not in FIELDS), None)
    if unknown is not None:
        raise RagmonError(f"extract names an unknown field: {shorten(unknown)}", hint=nearest(str(unknown), FIELDS))
    return {field: parse(path, f"extract[{field!r}]") for field, path in extract.items()}


def _wrap(function: Any, make: Callable[[Callable[..., Any]], TracedFunction]) -> Any:
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(_wrap(function.__func__, make))
    if not callable(function) or inspect.isclass(function):
        raise RagmonError(f"{shorten(function)} cannot be traced", hint="decorate a function or a method")
    if is_disabled():
        return function
    traced_function = make(function)
    if isinstance(traced_function.question, tuple) and traced_function.signature is not None:
        parameters, start = traced_function.signature.parameters, traced_function.question[0]
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        if start not in parameters and not takes_any:  # the path would never find a value
            name = getattr(function, "__qualname__", shorten(function))
            message = f"question starts at {shorten(start)}, which is not a parameter of {name}"
            raise RagmonError(message, hint=nearest(str(start), parameters))
    source = None if traced_function.question is not None else _brings_many(traced_function.signature)
    if source is not None:
        name = getattr(function, "__qualname__", shorten(function))
        warn_once(
            f"@ragmon.trace leaves {name} alone: its {source} holds many questions, and a record is about one. "
            "Decorate the function that answers one question; traced functions inside are requests of their own"
        )
        return function
    traced = wrap(traced_function)
    setattr(traced, _TRACED_FUNCTION, traced_function)
    return traced


_CONNECTIONS: Final = re.compile(r"\b(?:WebSocket\w*|ServerConnection|ServerProtocol)\b")
_CONNECTION_NAMES: Final = frozenset({"ws", "websocket"})
_QUEUES: Final = re.compile(r"\b(?:(?:Simple|Joinable|Lifo|Priority)?Queue|\w*Consumer|PubSub)\b")
_QUEUE_NAMES: Final = frozenset({"queue", "consumer"})
_QUESTION_NAMES: Final = frozenset({"question", "query", "q", "prompt", "message", "text"})


def _brings_many(signature: inspect.Signature | None) -> str | None:
    # The parameter through which a function gets one question after the other: a connection beside no question, or a
    # queue alone. None where it has none.
    parameters = () if signature is None else signature.parameters.values()
    own = [parameter for parameter in parameters if parameter.name not in ("self", "cls")]
    if any(parameter.name in _QUESTION_NAMES for parameter in own):
        return None
    for parameter in own:
        known = parameter.annotation
        known = known if isinstance(known, str) else getattr(known, "__name__", str(known))
        if parameter.name in _CONNECTION_NAMES or _CONNECTIONS.search(known):
            return parameter.name
        if len(own) == 1 and (parameter.name in _QUEUE_NAMES or _QUEUES.search(known)):
            return parameter.name
    return None


def traced_as(function: Any) -> TracedFunction | None:
    """The decorator's arguments of a traced function; None if it is not traced."""
    traced_function = getattr(function, _TRACED_FUNCTION, None)
    return traced_function if isinstance(traced_function, TracedFunction) else None


def is_disabled() -> bool:
    """Whether `RAGMON_DISABLED` switches ragmon off: then decorators return the functions unchanged."""
    return os.environ.get(DISABLED, "").strip().lower() in ON


def wrap(traced_function: TracedFunction) -> Callable[..., Any]:
    """The traced form of a function, of the same kind: sync, async, generator or async generator."""
    function, call_method = traced_function.function, inspect.getattr_static(type(traced_function.function), "__call__")
    for is_of_kind, wrapper in (
        (inspect.iscoroutinefunction, _wrap_async),
        (inspect.isasyncgenfunction, _wrap_async_generator),
        (inspect.isgeneratorfunction, _wrap_generator),
    ):
        if is_of_kind(function) or is_of_kind(call_method):
            return wrapper(traced_function)
    return _wrap_sync(traced_function)


def _wrap_sync(traced_function: TracedFunction) -> Callable[..., Any]:
    function = traced_function.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        plan = traced_function.plan
        if plan is None or plan.stale:
            plan = prepare(traced_function)
        lost, watch = calls.random() < plan.p_unsampled, plan.watch
        call: Call | Literal[False] | None
        if calls.active.get()[0] is None and (watch is None or not watch()):
            call = UNSAMPLED if lost else Call(traced_function, plan, args, kwargs, plan.sampled)
        else:
            call = start_call(traced_function, plan, args, kwargs, lost=lost)
            if call is None:
                return function(*args, **kwargs)
        running: Running = [call]
        mark, stratum, started = None, None, perf_counter()
        # After each call in here the handler of a signal may raise: then the function has raised, for whoever counts.
        try:
            mark = calls.active.set(running)
            result = function(*args, **kwargs) if kwargs else function(*args)  # the first makes two dictionaries
            seconds = perf_counter() - started
            stratum = plan.stratum(seconds, result)
        except BaseException as error:
            raised(call or _unsampled(traced_function, plan, args, kwargs), perf_counter() - started, error)
            raise
        finally:
            running[0] = None
            # Where it stays, it says nothing. A stream sets it again, and a probe may make more calls.
            if mark is not None and (stratum is None or (call and call.probe)):
                end_mark(mark)
        if stratum is REST and not call:
            next(plan.count_rest)
            if plan.times:
                plan.time_rest(seconds)
            return result
        call = call or _unsampled(traced_function, plan, args, kwargs)
        if stratum is None:
            return finish(call, seconds, running, result)
        count_outcome(call, stratum, seconds, result)
        return result

    return traced


def _wrap_async(traced_function: TracedFunction) -> Callable[..., Awaitable[Any]]:
    function = traced_function.function

    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        plan = traced_function.plan
        if plan is None or plan.stale:
            plan = prepare(traced_function)
        lost, watch = calls.random() < plan.p_unsampled, plan.watch
        call: Call | Literal[False] | None
        if calls.active.get()[0] is None and (watch is None or not watch()):
            call = UNSAMPLED if lost else Call(traced_function, plan, args, kwargs, plan.sampled)
        else:
            call = start_call(traced_function, plan, args, kwargs, lost=lost)
            if call is None:
                return await function(*args, **kwargs)
        running: Running = [call]
        mark, stratum, started = None, None, perf_counter()
        # After each call in here the handler of a signal may raise: then the function has raised, for whoever counts.
        try:
            mark = calls.active.set(running)
            result = await (function(*args, **kwargs) if kwargs else function(*args))  # as above
            seconds = perf_counter() - started
            stratum = plan.stratum(seconds, result)
        except BaseException as error:
            raised(call or _unsampled(traced_function, plan, args, kwargs), perf_counter() - started, error)
            raise
        finally:
            running[0] = None
            # Where it stays, it says nothing. A stream sets it again, and a probe may make more calls.
            if mark is not None and (stratum is None or (call and call.probe)):
                end_mark(mark)
        if stratum is REST and not call:
            next(plan.count_rest)
            if plan.times:
                plan.time_rest(seconds)
            return result
        call = call or _unsampled(traced_function, plan, args, kwargs)
        if stratum is None:
            return finish(call, seconds, running, result)
        count_outcome(call, stratum, seconds, result)
        return result

    return traced


def _unsampled(traced_function: TracedFunction, plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
    return Call(traced_function, plan, args, kwargs, plan.unsampled, detailed=False)


def _wrap_generator(traced_function: TracedFunction) -> Callable[..., Generator[Any, Any, Any]]:
    # The call begins when the first item is requested.
    function = traced_function.function

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        call, inner = _start(traced_function, args, kwargs), function(*args, **kwargs)
        return (yield from inner if call is None else trace_generator(StreamTracker(call, perf_counter()), inner))

    return traced


def _wrap_async_generator(traced_function: TracedFunction) -> Callable[..., AsyncGenerator[Any, Any]]:
    function = traced_function.function

    def start(*args: Any, **kwargs: Any) -> tuple[StreamTracker, AsyncGenerator[Any, Any]]:
        return StreamTracker(_start(traced_function, args, kwargs), perf_counter()), function(*args, **kwargs)

    return functools.wraps(function)(trace_async_generator(start))


def _start(traced_function: TracedFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
    plan = traced_function.plan
    if plan is None or plan.stale:
        plan = prepare(traced_function)
    return start_call(traced_function, plan, args, kwargs, lost=calls.random() < plan.p_unsampled)


MOST: Final = 10_000
"""Labels that wait to be exported; above this, new ones are dropped and counted."""
DROPPED: Final = "dropped"

Given = dict[str, Any]


class LabelSender:
    """The queue of labels between the application and the worker.

    While nothing is monitored, labels are not `taken`, but ignored.
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


label_sender: LabelSender | None = None
"""The queue of this process's installation."""


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
    sender = label_sender
    if sender is None:
        warn_once("ragmon.label was called before ragmon.install, and the label is lost")
        return
    rating = {"trace_id": trace_id, "rater": rater, "ts": time(), "correct": correct, "answerable": answerable}
    rating |= {"relevant_ids": relevant_ids, "comment": comment}
    sender.put(rating)


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
    call = recorded_call()
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
