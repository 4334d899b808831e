"""Which of a call's arguments is the question."""

from __future__ import annotations

import pytest

import ragmon
from ragmon.capture.convert import call_to_record
from tests.support.capturing import capturing


class Request:
    def __init__(self, *contents):
        self.messages = [{"content": content} for content in contents]


def asked(function, args, kwargs=None, *, where=None):
    """The question that is found in a call."""
    with capturing() as (_, kept):
        ragmon.trace(question=where)(function)(*args, **(kwargs or {}))
    return call_to_record(kept[0]).q


def named(user, question="by default", lang="en"):
    assert user
    assert question or lang


def unnamed(user_id, text, limit=5, lang="en"):
    assert user_id
    assert text or limit or lang


def anything(*args, **kwargs):
    assert args or kwargs


@pytest.mark.parametrize(
    ("expected", "function", "args", "kwargs"),
    [
        ("Is it?", named, ("u", "Is it?"), {}),
        ("Is it?", named, ("u",), {"question": "Is it?"}),
        ("by default", named, ("u",), {}),
        ("Is it?", unnamed, (7, "Is it?"), {}),
        (None, unnamed, (7, 8), {}),
        ("Is it?", anything, ("Is it?", "en"), {}),
        ("Is it?", anything, ("en",), {"query": "Is it?"}),
        ("Is it?", anything, (), {"lang": 7, "text": "Is it?"}),
    ],
)
def test_the_question_is_the_parameter_of_that_name_or_the_first_text(expected, function, args, kwargs):
    """A default nobody gave is no first text: a language is not a question."""
    assert asked(function, args, kwargs) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("request.messages[-1].content", "last"),
        ("request.messages[0].content", "first"),
        ("request.messages[7].content", None),
        ("request.nothing.content", None),
        (lambda request: request.messages[0]["content"].upper(), "FIRST"),
        (lambda request: [{"type": "text", "text": request.messages[0]["content"]}], "first"),
    ],
)
def test_the_question_may_be_anywhere(where, expected):
    def answer(request):
        assert request

    assert asked(answer, [Request("first", "last")], where=where) == expected
