"""A program that sends traced functions of every kind to other processes; `python -m` makes it their `__main__`.

`dump FILE` writes the functions as cloudpickle sends them: fresh, called, called under a runtime, and within a call.
`joblib`, `spawn` and `executor` send `answer` to a pool of two workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import multiprocessing
import pickle
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import cloudpickle
import joblib

import ragmon
from ragmon.testing import capture_traces

DOCUMENTS = [{"id": "d1", "text": "a text"}]


@ragmon.trace(name="support", sample=1.0)
def answer(question):
    return {"answer": f"{question} [1]", "documents": DOCUMENTS}


@ragmon.trace(
    name="support",
    question=lambda request: request.upper(),
    extract=lambda result: {"claim": result, "retrieved": DOCUMENTS},
    id_from="id",
)
def told(request):
    return f"{request} [1]"


@ragmon.trace(name="support", reduce="".join)
def generated(question):
    yield from (question, " [1]")


@ragmon.trace(name="support")
async def awaited(question):
    return f"{question} [1]"


@ragmon.trace(name="support")
async def generated_async(question):
    yield question
    yield " [1]"


@ragmon.trace(name="support")
def any_arguments(*args, **kwargs):
    return " ".join([*args, *kwargs])


@ragmon.trace(name="support")
def with_defaults(question, mark="[1]", *, times=1):
    return f"{question} {mark * times}"


@ragmon.trace(name="support")
def counts_down(question, steps=2):
    return counts_down(question, steps - 1) if steps else f"{question} [1]"


def closure(mark):
    @ragmon.trace(name="support")
    def inner(question):
        return f"{question} {mark}"

    return inner


class Pipeline:
    """A pipeline as a class; its functions are traced."""

    @ragmon.trace(name="support")
    def ask(self, question):
        return f"{question} [1]"

    @classmethod
    @ragmon.trace(name="support")
    def ask_class(cls, question):
        return f"{question} of {cls.__name__}"

    @staticmethod
    @ragmon.trace(name="support")
    def ask_static(question):
        return f"{question} [1]"

    def __call__(self, question):
        return f"{question} [1]"


class Narrow(Pipeline):
    def ask(self, question):
        return super().ask(question)


class Steps:
    """A pipeline that is given its steps."""

    def __init__(self):
        self.step = closure("[1]")

    def ask(self, question):
        return self.step(question)


def kinds():
    """Traced functions by the name of their kind."""
    name = ragmon.trace(name="support")
    return {
        "function": answer,
        "function with callables": told,
        "generator function": generated,
        "async function": awaited,
        "async generator function": generated_async,
        "any arguments": any_arguments,
        "defaults": with_defaults,
        "recursive": counts_down,
        "closure": closure("[1]"),
        "lambda over one": lambda question: told(request=question),
        "traced lambda": name(lambda question: f"{question} [1]"),
        "method": Pipeline().ask,
        "method of a subclass": Narrow().ask,
        "class method": Pipeline.ask_class,
        "static method": Pipeline.ask_static,
        "method over an attribute": Steps().ask,
        "traced method": name(Steps().ask),
        "callable object": name(Pipeline()),
        "partial of one": functools.partial(with_defaults, times=2),
        "traced partial": name(functools.partial(lambda mark, question: f"{question} {mark}", "[1]")),
        "function of C": name(str.title),
        "traced twice": name(answer),
    }


def outcome(function):
    """What a function gives, whatever its kind, with its stream read to the end."""

    async def collected(stream):
        return [item async for item in stream]

    result = function("q")
    if inspect.isasyncgen(result):
        return asyncio.run(collected(result))
    if inspect.iscoroutine(result):
        return asyncio.run(result)
    return list(result) if inspect.isgenerator(result) else result


def dump(path):
    """Pickle them fresh, after a call, and after a call under a runtime that stays installed."""
    functions = kinds()
    pickled = [cloudpickle.dumps(functions)]
    for _ in map(outcome, functions.values()):
        pass
    pickled.append(cloudpickle.dumps(functions))
    with capture_traces():
        for _ in map(outcome, functions.values()):
            pass
        pickled.append(cloudpickle.dumps(functions))
        pickled.append(ragmon.trace(lambda: cloudpickle.dumps(functions))())  # inside a call that runs
    Path(path).write_bytes(pickle.dumps(pickled))


def receive(path, *, installed):
    """Call what `dump` has written: for each time, what it gives and the pipelines of the calls that were traced."""
    found = []
    for pickled in pickle.loads(Path(path).read_bytes()):
        results = {}
        for kind, function in cloudpickle.loads(pickled).items():
            with capture_traces() if installed else contextlib.nullcontext([]) as records:
                result = outcome(function)
            results[kind] = result, [record.pipeline for record in records]
        found.append(results)
    return found


def work(function, question):
    """In a worker, under a runtime of its own: the answer and the question that was traced."""
    with capture_traces() as records:
        function(question)
    return records[0].q, records[0].answer_json.claim


def send(pool):
    """Send `answer` to a pool after it was called; gives what the workers traced."""
    questions = ["one", "two", "three"]
    if pool == "joblib":
        return joblib.Parallel(n_jobs=2)(joblib.delayed(work)(answer, question) for question in questions)
    spawn = multiprocessing.get_context("spawn")
    if pool == "spawn":
        with spawn.Pool(2) as processes:
            return processes.starmap(work, [(answer, question) for question in questions])
    with ProcessPoolExecutor(2, mp_context=spawn) as executor:
        return list(executor.map(functools.partial(work, answer), questions))


if __name__ == "__main__":
    if sys.argv[1] == "dump":
        dump(sys.argv[2])
    else:
        with capture_traces():
            answer("before")
            sys.stdout.write(repr(send(sys.argv[1])))
