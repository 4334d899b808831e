"""One decorator on a FastAPI endpoint that streams over LangChain: question, ids, answer and duration."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def told():
    """What the application said and what ragmon recorded; real server, real client, real framework."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.streaming_app"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_the_question_is_the_endpoints_parameter_and_the_answer_what_was_streamed(told):
    (record,) = told["records"]
    assert (record["q"], record["answer"]) == ("Who ruled Normandy?", told["said"])


def test_the_ids_are_those_the_framework_returned(told):
    assert told["records"][0]["ids"] == told["ids"] != []


def test_the_duration_reaches_to_the_end_of_the_stream(told):
    (record,) = told["records"]
    assert record["retrieve"] < record["milliseconds"] < 1000 * told["elapsed"] + 50
