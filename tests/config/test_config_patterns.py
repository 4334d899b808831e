"""Patterns of users that explode: the check of the configuration finds them, and a search for them ends."""

from __future__ import annotations

import json
import pickle
import re
import subprocess
import sys
from time import process_time

import pytest

from ragmon.config.load import check
from ragmon.core import errors
from ragmon.core.refusals import MATCH_SECONDS, RefusalRule, languages, user_pattern
from ragmon.core.text import fold
from tests.support.refusal_report import read_list

HARD = r"(?:\u00a7|\u00a7\u00a7)+$"
"""A pattern that explodes on section signs alone, and spells them in a way that no trial text holds."""
HARD_ANSWER = "\u00a7" * 100 + "!"


def problems(tmp_path, pattern):
    path = tmp_path / "ragmon.toml"
    path.write_text(f"[refusal]\npatterns = ['fine', '''{pattern}''']\n", encoding="utf-8")
    return check(path, environ={})


EXPLODING = [
    "(.*a){20}$",
    r"(\w+\s?)+$",
    r"(\d+)+x",
    "(x+x+)+y",
    r"((sorry|so|rry)+ ?)+\.",
    r"(?:i|i am|am|\s)+ sorry$",
    "(a|b|ab)*(?=c)",
    r"\w(?=(?:a|aa)+$)",
    "(?!(?:a|aa)+b)a",
    "(?:a+){10}$",
]


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "(a|aa)+$", *(pytest.param(p, marks=pytest.mark.slow) for p in EXPLODING)]
)
def test_a_pattern_that_explodes_is_a_problem_of_its_line(tmp_path, pattern):
    (problem,) = problems(tmp_path, pattern)
    assert (problem.line, problem.key) == (2, "refusal.patterns[1]")
    assert "takes too long" in problem.message
    assert problem.value == pattern
    assert "(a|aa)*" in problem.hint


@pytest.mark.parametrize(
    "pattern",
    [
        "goes beyond my .* book",
        r"(?:no|kein\w*)\b.*\b(?:answer|antwort)\b",
        r"(?:\w+ ){0,10}not found",
        r"the (?:documents?|context|passages?)(?: \w+)* (?:do|does) not",
        r"^[^.]*not in the context[^.]*\.$",
        "(?:a|aa)++$",
        "(?>(?:a|aa)+)$",
    ],
)
def test_a_pattern_that_is_merely_general_is_none(tmp_path, pattern):
    assert problems(tmp_path, pattern) == []


@pytest.fixture
def said(monkeypatch):
    """What was warned of, in a process that has warned of nothing before."""
    messages: set[str] = set()
    monkeypatch.setattr(errors, "_said", messages)
    return messages


def test_an_answer_is_judged_without_the_pattern_that_takes_too_long(said):
    rule = RefusalRule(patterns=(HARD, "beyond my book"))
    start = process_time()
    verdicts = [
        rule.kind(text) is not None for text in (HARD_ANSWER, "beyond my book", "I don't know.", "\u00a7\u00a7")
    ]
    assert verdicts == [False, True, True, True]
    assert rule.kind(f"{HARD_ANSWER} beyond my book"[-110:])
    assert process_time() - start < 20 * MATCH_SECONDS
    (message,) = said
    assert repr(HARD) in message


def test_a_thread_of_the_application_waits_no_longer_either(said):
    start = process_time()
    assert not RefusalRule(patterns=(HARD,)).refuses(HARD_ANSWER)
    assert process_time() - start < 20 * MATCH_SECONDS


def test_a_replay_ends_whatever_the_pattern_and_says_once_which_one_it_left_out(tmp_path):
    (tmp_path / "ragmon.toml").write_text(f"refusal.patterns = ['{HARD}']\n", encoding="utf-8")
    answers = [HARD_ANSWER, "\u00a7" * 80 + "?", "\u00a7\u00a7", "In May."]
    lines = [json.dumps({"qid": str(n), "answer_json": {"claim": claim}}) for n, claim in enumerate(answers)]
    (tmp_path / "t.jsonl").write_text("\n".join(lines), encoding="utf-8")
    command = [sys.executable, "-m", "ragmon", "replay", "t.jsonl", "--format", "json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    (series,) = json.loads(ended.stdout)["series"]
    assert series["metrics"]["refusal_rate"]["sum"] == 1
    assert ended.stderr.count("judged without it") == 1


def test_a_rule_with_own_patterns_goes_to_another_process():
    rule = RefusalRule(patterns=("beyond my book",))
    copied = pickle.loads(pickle.dumps(rule))
    assert copied == rule
    assert copied.kind("beyond my book")


@pytest.mark.slow
def test_the_engine_with_a_limit_finds_what_pythons_own_finds():
    """Every shipped wording, taken as a pattern of a user, on every answer of the lists."""
    answers = [fold(answer.answer)[:120] for name in ("handmade", "later") for answer in read_list(f"{name}.jsonl")]
    for opening in (opening for language in languages() for _, opening in language.openings):
        own, pythons = user_pattern(opening), re.compile(opening)
        for answer in answers:
            found, expected = own.search(answer, timeout=10), pythons.search(answer)
            assert (found and found.span()) == (expected and expected.span()), (opening, answer)
