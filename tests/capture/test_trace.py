"""`@ragmon.trace`: the function stays what it was, whatever it is, and mistakes show where they are written."""

from __future__ import annotations

import asyncio
import functools
import inspect
import pickle
import subprocess
import sys
import traceback

import pytest

import ragmon
from ragmon.capture.call import install_runtime
from ragmon.config.load import defaults
from ragmon.core.errors import RagmonError
from ragmon.monitor.install import Installation
from ragmon.testing import Collected, capture_traces
from tests.support.capturing import BrokenError, capturing, pipeline, raises, returns
from tests.support.waiting import TIMEOUT

traced = ragmon.trace(pipeline)
kept_or_not = pytest.mark.parametrize("rate", [0.0, 1.0])


@ragmon.trace(name="support")
def module_level(question):
    return question


def test_it_looks_like_the_function_it_wraps():
    assert traced.__name__ == "pipeline"
    assert traced.__qualname__ == pipeline.__qualname__
    assert traced.__module__ == pipeline.__module__
    assert traced.__doc__ == pipeline.__doc__
    assert traced.__annotations__ == pipeline.__annotations__
    assert inspect.signature(traced) == inspect.signature(pipeline)
    assert traced.__wrapped__ is pipeline


def test_it_pickles_by_its_name():
    """Process pools and task queues send functions so."""
    assert pickle.loads(pickle.dumps(module_level)) is module_level


@kept_or_not
@pytest.mark.parametrize("result", [object(), ["a"], {"answer": "a"}, "a", None])
def test_the_result_is_the_very_object(rate, result):
    with capturing(rate):
        assert ragmon.trace(returns(result))("q") is result


@kept_or_not
def test_arguments_arrive_as_they_were_given(rate):
    thing = object()
    with capturing(rate):
        got = traced("q", 1, 2, deep=True, thing=thing)
    assert got == pipeline("q", 1, 2, deep=True, thing=thing)
    assert got["more"]["thing"] is thing


def frames(function):
    """The names of the frames an error passed on its way, innermost last; and the error."""
    with pytest.raises(BrokenError) as caught:
        function("raise")
    return [frame.name for frame in traceback.extract_tb(caught.tb)][1:], caught.value


@kept_or_not
def test_an_error_is_the_very_error_with_the_frames_of_the_function(rate):
    own, _ = frames(pipeline)
    with capturing(rate):
        through, error = frames(traced)
    assert through[-len(own) :] == own, "the function's own frames, and above them those of the wrapper"
    assert type(error) is BrokenError
    assert error.args == ("raise",)
    assert error.__cause__ is error.__context__ is None


@kept_or_not
def test_a_call_that_does_not_fit_raises_what_python_raises(rate):
    with capturing(rate) as (_, kept), pytest.raises(TypeError, match="missing 1 required positional argument"):
        traced()
    assert len(kept) == rate


def test_an_error_that_was_kept_does_not_keep_its_frames_alive():
    """The record names the error; the frames it came through may hold connections and whole documents."""
    with capturing() as (_, kept), pytest.raises(BrokenError):
        traced("raise")
    held = [getattr(kept[0], name) for name in kept[0].__slots__]
    assert "BrokenError" in held
    assert not any(isinstance(value, BaseException) for value in held)


class Service:
    """A service whose methods are traced in every way there is."""

    greeting = "hello "

    @ragmon.trace
    def method(self, question):
        return self.greeting + question

    @ragmon.trace
    async def coroutine(self, question):
        return self.greeting + question

    @classmethod
    @ragmon.trace
    def below_class(cls, question):
        return cls.greeting + question

    @ragmon.trace
    @classmethod
    def above_class(cls, question):
        return cls.greeting + question

    @staticmethod
    @ragmon.trace
    def below_static(question):
        return "hello " + question

    @ragmon.trace(name="support")
    @staticmethod
    def above_static(question):
        return "hello " + question


def test_methods_of_every_kind_in_either_order_of_decorators():
    service = Service()
    with capture_traces() as records:
        assert service.method("1") == Service.method(service, "1") == "hello 1"
        assert asyncio.run(service.coroutine("2")) == "hello 2"
        assert service.below_class("3") == Service.below_class("3") == "hello 3"
        assert service.above_class("4") == Service.above_class("4") == "hello 4"
        assert service.below_static("5") == Service.below_static("5") == "hello 5"
        assert service.above_static("6") == Service.above_static("6") == "hello 6"
    asked = {(record.q, record.answer_json.claim) for record in records}
    assert asked == {(str(number), f"hello {number}") for number in range(1, 7)}
    assert len(records) == 11
    assert {record.pipeline for record in records if record.q == "6"} == {"support"}


class Callable:
    def __call__(self, question):
        return "hello " + question


class AsyncCallable:
    async def __call__(self, question):
        await asyncio.sleep(0)
        return "hello " + question


def test_callable_objects_and_partials():
    with capture_traces() as records:
        assert ragmon.trace(Callable())("a") == "hello a"
        assert asyncio.run(ragmon.trace(AsyncCallable())("b")) == "hello b"
        assert ragmon.trace(functools.partial(pipeline, deep=True))("c")["deep"]
    assert [(r.q, r.answer_json.claim) for r in records] == [("a", "hello a"), ("b", "hello b"), ("c", "c")]


def test_async_functions_stay_async_and_raise_what_they_raise():
    @ragmon.trace
    async def answer(question):
        await asyncio.sleep(0)
        raise BrokenError(question)

    assert inspect.iscoroutinefunction(answer)
    with capture_traces() as records:
        with pytest.raises(BrokenError) as caught:
            asyncio.run(answer("q"))
        assert traceback.extract_tb(caught.tb)[-1].name == "answer"
    assert [(r.error, r.answer_json, r.q) for r in records] == [("BrokenError", None, "q")]


@pytest.mark.parametrize(
    ("error", "told"), [(KeyboardInterrupt, (None, "interrupted")), (SystemExit, ("SystemExit", None))]
)
def test_what_ends_programs_passes_through_and_is_recorded(error, told):
    with capture_traces() as records, pytest.raises(error):
        ragmon.trace(raises(error))("q")
    assert [(r.error, r.ended) for r in records] == [told]


@pytest.mark.parametrize(
    ("wrong", "said", "hint"),
    [
        ({"sample": 1.5}, "sample is 1.5", "between 0 and 1"),
        ({"sample": -0.1}, "sample is -0.1", "between 0 and 1"),
        ({"sample": "often"}, "sample is 'often'", "between 0 and 1"),
        ({"sample": True}, "sample is True", "between 0 and 1"),
        ({"sample": float("nan")}, "sample is nan", "between 0 and 1"),
        ({"name": ""}, "name is ''", "pipeline"),
        ({"name": 7}, "name is 7", "pipeline"),
        ({"extract": {"claims": "answer"}}, "unknown field: 'claims'", "did you mean claim?"),
        ({"extract": {"claim": "answer[first]"}}, r"extract\['claim'\] is not a path: 'answer\[first\]'", "messages"),
        ({"extract": "answer"}, "extract is 'answer'", "a callable on the result"),
        ({"id_from": "metadata..id"}, "id_from is not a path: 'metadata..id'", "messages"),
        ({"question": "req text"}, "question is not a path: 'req text'", "messages"),
    ],
)
def test_what_can_never_work_is_refused_where_it_is_written(wrong, said, hint):
    with pytest.raises(RagmonError, match=said) as caught:
        ragmon.trace(**wrong)
    assert hint in caught.value.hint


def test_a_question_that_starts_at_no_parameter_is_refused():
    with pytest.raises(
        RagmonError, match="question starts at 'asked', which is not a parameter of module_level"
    ) as caught:
        ragmon.trace(question="asked.text")(module_level.__wrapped__)
    assert caught.value.hint == "one of: question"
    ragmon.trace(question="asked.text")(pipeline)  # its catch-all takes any name


@pytest.mark.parametrize("thing", [7, "answer", None, Service])
def test_only_functions_can_be_traced(thing):
    with pytest.raises(RagmonError, match="cannot be traced"):
        ragmon.trace(name="support")(thing)


SCRIPT = """
import logging
logging.basicConfig(format="%(levelname)s %(name)s %(message)s")
import ragmon
@ragmon.trace
def answer(question):
    with ragmon.stage("retrieve"):
        ragmon.record(retrieved=["a"])
    return ragmon.trace_id()
"""
ASK = "print([answer('?') for _ in range(3)])"


def run(*lines, **environment):
    """What a program prints and what it logs."""
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=TIMEOUT)
    return done.stdout.splitlines(), done.stderr.splitlines()


def test_without_install_functions_run_as_they_are_and_one_warning_says_so():
    out, err = run(SCRIPT, ASK)
    assert out == ["[None, None, None]"]
    assert len(err) == 1
    assert err[0].startswith("WARNING ragmon ragmon.install() was not called")


@pytest.mark.slow
def test_disabled_by_the_environment_nothing_is_captured_and_nothing_is_said(tmp_path):
    config = tmp_path / "ragmon.toml"
    config.write_text('[export]\njsonl = "trace.jsonl"\n')
    out, err = run(SCRIPT, "ragmon.install()", ASK, RAGMON_DISABLED="1", RAGMON_CONFIG=str(config))
    assert (out, err) == (["[None, None, None]"], [])
    assert [path.name for path in tmp_path.iterdir()] == ["ragmon.toml"]


def test_functions_decorated_before_install_are_captured_from_then_until_shutdown():
    sink = Collected()
    module_level("too early")
    installation = Installation(defaults(), sink, keep_all=True)
    before = installation.start()
    module_level("in time")
    assert installation.shutdown()
    install_runtime(before)
    module_level("too late")
    assert [r.q for r in sink.records] == ["in time"]


def sample(question, limit=5, /, *, mode="fast", **rest):
    return question, limit, mode, rest


def shaped(first, /, question, limit=5, *names, mode="fast"):
    return first, question, limit, names, mode


def keyword_only(*, question, mode="fast"):
    return question, mode


def positional_only(question, limit=5, /):
    return question, limit


def clashing(call, plan=1, result=2):
    return call, plan, result


def nothing():
    return "nothing"


CALLS = [
    (sample, ("q",), {}),
    (sample, ("q", 7), {"mode": "slow", "more": 1}),
    (shaped, (1, "q"), {}),
    (shaped, (1, "q", 2, "a", "b"), {"mode": "slow"}),
    (shaped, (1,), {"question": "q", "limit": 3}),
    (keyword_only, (), {"question": "q"}),
    (keyword_only, (), {"mode": "slow", "question": "q"}),
    (positional_only, ("q",), {}),
    (clashing, ("q",), {"result": 3}),
    (nothing, (), {}),
    (sample, (), {}),
    (shaped, (1,), {}),
    (keyword_only, ("q",), {}),
    (positional_only, (), {"question": "q"}),
    (positional_only, ("q", 1, 2), {}),
    (clashing, ("q",), {"plan": 1, "plans": 2}),
    (nothing, ("q",), {}),
]


def outcome(function, args, kwargs):
    """What a call gives or raises, as the caller sees it."""
    try:
        return function(*args, **kwargs)
    except TypeError as error:
        return str(error)


@kept_or_not
@pytest.mark.parametrize(("function", "args", "kwargs"), CALLS)
def test_every_kind_of_parameter_arrives_and_what_does_not_fit_is_refused_as_before(function, args, kwargs, rate):
    with capturing(rate):
        assert outcome(ragmon.trace(function), args, kwargs) == outcome(function, args, kwargs)


def test_a_default_is_the_very_object_and_no_question():
    marker = ["a default"]

    def answer(payload, held=marker, *, mode="fast"):
        return held

    with capture_traces() as records:
        assert ragmon.trace(answer)({"payload": "q"}) is marker
    assert records[0].q is None


def test_a_function_without_source_is_wrapped_all_the_same():
    namespace = {}
    exec("def answer(question, limit=5):\n    return question * limit", namespace)
    with capture_traces() as records:
        assert ragmon.trace(namespace["answer"])("q", 2) == "qq"
    assert records[0].q == "q"


@pytest.mark.parametrize(
    "annotation", ["websocket: WebSocket, client_id: int", "ws, room", "self, queue", "tasks: 'asyncio.Queue[str]'"]
)
def test_what_brings_many_questions_is_no_call_and_what_it_calls_for_each_is_one(annotation, caplog):
    names = ", ".join(part.partition(":")[0] for part in annotation.split(","))
    space = {"ragmon": ragmon, "asyncio": asyncio, "WebSocket": type("WebSocket", (), {})}
    lines = (f"def loop({annotation}):", "    for question in ('Is it?', 'Was it?'):", "        answer(question)")
    with capture_traces() as records:
        space["answer"] = ragmon.trace(lambda question: "yes")
        exec("\n".join(lines), space)
        loop = ragmon.trace(space["loop"])
        loop(*names.split(", "))
    assert loop is space["loop"]
    assert [record.q for record in records] == ["Is it?", "Was it?"]
    assert "leaves loop alone" in caplog.text


@pytest.mark.parametrize("parameters", ["question, queue", "q: str, ws", "prompt, queue: 'Queue'"])
def test_a_function_that_answers_into_a_queue_or_a_connection_is_traced(parameters):
    space = {}
    exec(f"def answer({parameters}):\n    return 'yes'", space)
    with capture_traces() as records:
        ragmon.trace(space["answer"])("Is it?", None)
    assert [record.q for record in records] == ["Is it?"]
