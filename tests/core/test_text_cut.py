"""A text of more than 64 Ki characters is read for facts as far as that; what the rest could change is unassessed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ragmon
from ragmon.capture.redact import Redaction
from ragmon.core import semconv
from ragmon.core.citations import split_citations
from ragmon.core.constants import TEXT_CUT
from ragmon.core.gold_item import GoldItem
from ragmon.core.record import encode
from ragmon.core.text import READ, head, is_cut, normalise_question, stream_safe
from ragmon.ingest import otlp
from ragmon.ingest.gold import GoldIndex
from ragmon.ingest.lines import decode
from ragmon.ingest.spans.mapper import to_record
from ragmon.metrics.base import build
from ragmon.metrics.builtin import groundedness
from ragmon.monitor.install import Installation
from ragmon.scoring.scorer import Scorer
from ragmon.testing import Collected, make_gold, make_record
from tests.support.effort import effort
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made

SECRET = b"0123456789abcdef0123456789abcdef"
FILLER = "word " * (READ // 5 + 1)
PHRASES = GoldItem(
    "q", "What?", answerable=True, claim_substrings=["harbour"], gold_claim="by the sea", citations=["d1"]
)
MARKS = "a" + "\u0315\u0300" * 32_000
"""125 KiB of marks out of order: to bring them into it takes the square of their number."""


def figures(gold, *records):
    """What came of each metric: how many were assessed, their sum, and why others were not."""
    scorer = Scorer(make_gold(gold) if isinstance(gold, GoldItem) else None)
    for record in records:
        scorer.observe(record)
    return {
        name: (stat.n, stat.value, dict(stat.unassessed))
        for series in scorer.snapshot().series
        for name, stat in series.metrics.items()
        if stat.n or stat.unassessed
    }


# --- what is read -----------------------------------------------------------------------------------------------------


def test_the_head_of_a_text_is_its_first_65536_characters_without_the_space_before():
    assert READ == 65_536
    assert head("é" * 70_000) == "é" * READ
    assert head(" " * 70_000 + "short") == "short"
    assert not is_cut(" " * 70_000 + "a" * READ)
    assert is_cut("a" * (READ + 1))


def test_a_phrase_that_is_found_is_found_however_much_follows():
    told = figures(PHRASES, make_record("q", claim="At the harbour. " + FILLER, retrieved=["d1"], citations=["d1"]))
    assert told["claim_containment"] == told["answer_precision"] == (1, 1.0, {})


def test_a_phrase_that_is_not_found_in_a_cut_claim_is_unassessed():
    """It may stand in the part nobody read, and be wrong all the same."""
    record = make_record("q", claim=FILLER + "At the harbour.", retrieved=["d1"], citations=["d1"])
    told = figures(PHRASES, record)
    assert told["claim_containment"] == told["answer_precision"] == (0, None, {TEXT_CUT: 1})
    assert told["citation_hit_rate"] == (1, 1.0, {})
    assert told["refusal_rate"] == (1, 0.0, {})


def test_a_phrase_of_the_gold_claim_that_is_found_stands_where_the_substring_is_unknown():
    told = figures(PHRASES, make_record("q", claim="by the sea " + FILLER, retrieved=["d1"], citations=["d1"]))
    assert told["claim_containment"] == (1, 1.0, {})
    assert told["answer_precision"] == (0, None, {TEXT_CUT: 1})


def test_a_claim_of_just_as_many_characters_is_read_to_its_end():
    claim = "a " * (READ // 2 - 4) + "harbour"
    told = figures(PHRASES, make_record("q", claim=claim, retrieved=["d1"], citations=["d1"]))
    assert told["claim_containment"] == (1, 1.0, {})


def test_groundedness_is_unassessed_where_the_rest_could_change_it():
    assert groundedness("a ferry leaves", ["the ferry leaves " + FILLER]) == 1.0
    assert groundedness("a ferry sinks", ["the ferry leaves " + FILLER]) is None
    assert groundedness(FILLER, ["word"]) is None
    told = figures(None, make_record(claim="a ferry sinks", contexts=["the ferry leaves " + FILLER]))
    assert told["groundedness"] == told["grounded_rate"] == (0, None, {TEXT_CUT: 1})


@pytest.mark.parametrize("match", ["exact", "contains"])
def test_a_gold_text_that_may_stand_in_the_rest_of_a_context_leaves_the_ranks_unassessed(match):
    gold = GoldItem("q", "What?", answerable=True, contexts=["By the sea"], match=match)
    unread = make_record("q", contexts=[FILLER + "by the sea", "by the sea"])
    assert figures(gold, unread)["recall"] == (0, None, {TEXT_CUT: 1})
    found = make_record("q", contexts=["by the sea " + FILLER])
    assert figures(gold, found)["recall"] == ((1, 1.0, {}) if match == "contains" else (0, None, {TEXT_CUT: 1}))


def test_a_question_that_was_cut_is_not_the_question_it_begins_with():
    gold = GoldIndex(make_gold(GoldItem("q", "What is it", answerable=True)))
    assert gold.match(make_record(q="What is it" + "?" * 1000)) is not None
    assert gold.match(make_record(q="What is it" + "?" * READ + " No, what else?")) is None
    assert normalise_question("a" * READ + "b") != normalise_question("a" * READ)


def test_citations_are_found_at_the_end_of_any_text():
    assert split_citations(FILLER + "citations: [d1, d2]")[1] == ["d1", "d2"]


@pytest.mark.parametrize("content", ["none", "hash"])
def test_the_application_says_the_same_of_a_cut_claim_as_a_server_that_reads_it(content):
    records = [
        make_record("q", claim=claim, retrieved=["d1"], citations=["d1"], contexts=contexts)
        for claim in (
            "At the harbour",
            "by the sea " + FILLER,
            FILLER + "harbour",
            "harbour " + FILLER,
            "not in context",
        )
        for contexts in (["at the harbour"], ["the sea " + FILLER])
    ]
    measured = tuple(metric for metric in build().values() if metric.measured)
    policy = Redaction(content, content, key=SECRET, gold=GoldIndex(make_gold(PHRASES)), measured=measured)
    travelled = [decode(encode(policy(record))) for record in records]
    assert not any(record.answer_json.claim for record in travelled)
    assert figures(PHRASES, *travelled) == figures(PHRASES, *records)


# --- combining marks --------------------------------------------------------------------------------------------------


def by_the_standard(text):
    """UAX #15, section 13: the Stream-Safe Text Process, word by word."""
    out, count = [], 0
    for char in text:
        decomposed = [unicodedata.combining(part) != 0 for part in unicodedata.normalize("NFKD", char)]
        leading = decomposed.index(False) if False in decomposed else len(decomposed)
        if count + leading > 30:
            out.append("\u034f")
            count = 0
        out.append(char)
        count = decomposed[::-1].index(False) if False in decomposed else count + leading
    return "".join(out)


marks = st.sampled_from("\u0301\u0315\u0345\u0344\u0f73\u0f81\uff9e\u3099\U0001d165\U0001e8d0")
pieces = st.tuples(marks, st.integers(1, 45)).map(lambda pair: pair[0] * pair[1]) | st.sampled_from(
    "aé ᾂが文\U0001d400"
)


@given(st.lists(pieces, max_size=12).map("".join))
def test_runs_of_more_than_30_marks_are_broken_as_the_standard_says(text):
    assert stream_safe(text) == by_the_standard(text)


def test_every_mark_of_this_pythons_unicode_counts():
    starts = [char for char in map(chr, range(0x110000)) if not "\ud800" <= char <= "\udfff"]
    wrong = [
        char
        for char in starts
        if unicodedata.combining(unicodedata.normalize("NFKD", char)[0]) and "\u034f" not in stream_safe(char * 31)
    ]
    assert wrong == []


# --- what froze whole processes ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_small_body_with_a_long_answer_is_read_in_a_moment():
    """1.6 KB of gzip are 700 KiB of answer; reading them took hours, and began again after every restart."""
    said = json.dumps([{"role": "assistant", "parts": [{"type": "text", "content": "citations: [" * 60_000}]}])
    span = made({semconv.OPERATION: "chat", semconv.OUTPUT_MESSAGES: said})
    body = export([span]).SerializeToString()
    assert len(gzip.compress(body)) < 4096
    assert len(body) > 700_000

    def read():
        (held,) = otlp.read(body, json=False).external
        record = to_record([held.span()]).record
        assert Scorer().observe(record)
        return record

    units, record = effort(read)
    assert record.answer_json.claim.startswith("citations: [")
    assert record.answer_json.citations is None
    assert units < 20


@pytest.fixture
def logged(configured, tmp_path):
    """Calls a traced function under a configuration that exports to a file; its effort, and the lines of the file."""

    def run(answer, question, capture):
        installation = Installation(
            configured(f'[capture]\n{capture}\n[export]\njsonl = "trace.jsonl"'), Collected(), keep_all=True
        )
        installation.start()
        traced = ragmon.trace(lambda question: {"answer": answer, "documents": [{"id": "d1", "text": answer}]})
        units, _ = effort(lambda: (traced(question), installation.shutdown()))
        assert installation.counters().dropped == {}
        lines = map(json.loads, (tmp_path / "trace.jsonl").read_text("utf-8").splitlines())
        return units, [line for line in lines if line.get("kind") != "totals"]

    return run


@pytest.mark.slow
@pytest.mark.parametrize("capture", ['content = "none"', 'content = "redacted"'])
@pytest.mark.parametrize(
    "answer",
    ["citations: [" * 10_000, MARKS, "-----BEGIN A-----" + "a-" * 60_000, "ada@example." * 10_000, "[1-99]" * 20_000],
    ids=["citations", "marks", "pem", "email", "numbers"],
)
def test_the_worker_in_the_application_reads_a_long_answer_in_a_moment(answer, capture, logged):
    """117 KiB of answer, and the same as a context; all threads of the application stood still for ten seconds."""
    units, lines = logged(answer, "What?", capture)
    assert len(lines) == 1
    assert units < 40


@pytest.mark.slow
def test_a_question_of_marks_is_looked_up_in_the_gold_in_a_moment(logged, tmp_path):
    """125 KiB from a form field, no model needed."""
    (tmp_path / "gold.jsonl").write_text('{"qid": "q", "question": "Wo ist das Café?", "answerable": true}\n', "utf-8")
    units, lines = logged("There.", MARKS, 'gold = "gold.jsonl"')
    assert len(lines) == 1
    assert units < 40
    assert effort(lambda: Scorer(make_gold(PHRASES)).observe(make_record(q=MARKS)))[0] < 20


def test_a_key_that_never_ends_takes_no_memory_by_the_hundredfold():
    """One MiB of text behind the first line of a PEM block took 121 MiB more."""
    script = """
import resource
from ragmon.capture.redact import redact
redact("-----BEGIN A-----" + "a-" * 100)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
redact("-----BEGIN A-----" + "a-" * 524_288)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 24 * 1024  # KiB
