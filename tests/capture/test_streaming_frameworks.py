"""Web frameworks that stream answers in six wire formats over a socket: question, answer, ids, refusal and duration."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT
from tests.support.wire_apps import ANSWER, DOCUMENTS, FORMATS, FRAMEWORKS, PAUSE, RECORDED, REFUSAL

ROOT = Path(__file__).parents[2]
IDS = [document["id"] for document in DOCUMENTS]
DECODED = [name for name in FRAMEWORKS if name != "a handler of aiohttp"]
QUESTIONS = {"When does the harbour open?": ANSWER, "Who painted the ferry?": REFUSAL}


@lru_cache
def asked(framework):
    """What a client of an application got, and what ragmon recorded; real servers, one process each."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.wire_apps", framework],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [reply["status"] for reply in found] == [200] * 2 * len(FORMATS)
    assert [(reply["q"], reply["error"], reply["ended"]) for reply in found] == [
        (reply["asked"], None, None) for reply in found
    ]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("framework", DECODED)
def test_answers_refusals_and_ids_are_those_of_the_stream(framework):
    found = {(reply["format"], reply["asked"]): (reply["answer"], reply["ids"]) for reply in asked(framework)}
    assert found == {(name, question): (said, IDS) for name in FORMATS for question, said in QUESTIONS.items()}


@pytest.mark.slow
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_duration_reaches_to_the_end_of_the_stream(framework):
    for reply in asked(framework):
        least = 1000 * PAUSE * len(QUESTIONS[reply["asked"]].split())
        assert least <= reply["milliseconds"] <= 1000 * reply["elapsed"], reply


@pytest.mark.slow
def test_what_a_handler_writes_itself_is_unknown_but_what_it_records():
    found = asked("a handler of aiohttp")
    assert {reply["answer"] for reply in found} == {None}
    assert {reply["format"] for reply in found if reply["ids"] == IDS} == set(RECORDED)
