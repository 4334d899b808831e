"""A traced function goes to other processes as the undecorated one does, whatever happened to it before."""

from __future__ import annotations

import ast
import copy
import pickle
import subprocess
import sys

import cloudpickle
import pytest

import ragmon
from ragmon.capture.trace import traced_as
from ragmon.testing import capture_traces
from tests.support.sent_functions import Steps, answer, kinds, outcome
from tests.support.waiting import TIMEOUT

BY_NAME = [
    "function",
    "generator function",
    "async function",
    "async generator function",
    "method",
    "method of a subclass",
    "class method",
    "static method",
    "partial of one",
]


def run(*args):
    done = subprocess.run([sys.executable, *args], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """What the functions of a `__main__` were pickled to: fresh, called, called under a runtime, within a call."""
    path = tmp_path_factory.mktemp("sent") / "functions"
    run("-m", "tests.support.sent_functions", "dump", str(path))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("installed", [True, False])
def test_functions_of_a_main_module_run_elsewhere_under_the_plan_of_that_process(sent, installed):
    code = f"from tests.support.sent_functions import receive; print(receive({str(sent)!r}, installed={installed}))"
    expected = {kind: (outcome(function), ["support"] if installed else []) for kind, function in kinds().items()}
    assert ast.literal_eval(run("-c", code)) == [expected] * 4


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["joblib", "spawn", "executor"])
def test_workers_of_a_pool_trace_a_function_that_was_called_before(pool):
    found = run("-m", "tests.support.sent_functions", pool)
    assert ast.literal_eval(found) == [(question, f"{question} [1]") for question in ("one", "two", "three")]


CELLS = """
import joblib, ragmon
from tests.support.sent_functions import work
def run_cell(number, text):
    exec(compile(text, f"<ipython-input-{number}>", "exec"), globals())
run_cell(1, "@ragmon.trace\\ndef answer(question): return f'{question} [1]'")
run_cell(2, "answer('before')")
run_cell(3, "print(joblib.Parallel(n_jobs=2)(joblib.delayed(work)(answer, question) for question in 'ab'))")
"""


@pytest.mark.slow
def test_a_function_of_a_notebook_is_sent_to_workers():
    assert ast.literal_eval(run("-c", CELLS)) == [("a", "a [1]"), ("b", "b [1]")]


def test_a_called_function_is_cloudpickled():
    for kind in kinds():
        function = kinds()[kind]
        with capture_traces():
            expected = outcome(function)
            pickled = cloudpickle.dumps(function)
        with capture_traces() as records:
            assert outcome(cloudpickle.loads(pickled)) == expected, kind
        assert [record.pipeline for record in records] == ["support"], kind


@pytest.mark.parametrize("kind", BY_NAME)
def test_a_called_function_is_pickled_by_name(kind):
    function = kinds()[kind]
    expected = outcome(function)
    with capture_traces() as records:
        assert outcome(pickle.loads(pickle.dumps(function))) == expected
    assert [record.pipeline for record in records] == ["support"]


def test_the_arguments_of_the_decorator_travel():
    mark = "!"

    @ragmon.trace(
        name="support",
        sample=1.0,
        question=lambda request: request + mark,
        extract=lambda result: {"claim": result["text"] + mark, "retrieved": result["found"]},
        id_from="metadata.key",
    )
    def told(request):
        return {"text": request, "found": [{"text": "t", "metadata": {"key": "d1"}}]}

    told("q")
    with capture_traces() as records:
        cloudpickle.loads(cloudpickle.dumps(told))("q")
    record = records[0]
    assert (record.q, record.answer_json.claim, record.retrieved_ids) == ("q!", "q!", ["d1"])


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_what_holds_a_traced_function_is_copied(copied):
    with capture_traces():
        answer("q")
        function, pipeline, arguments = copied(answer), copied(Steps()), copied(traced_as(answer))
    assert function is answer
    assert (arguments.name, arguments.sample, arguments.function) == ("support", 1.0, traced_as(answer).function)
    with capture_traces() as records:
        assert pipeline.step("q") == "q [1]"
    assert [record.pipeline for record in records] == ["support"]
