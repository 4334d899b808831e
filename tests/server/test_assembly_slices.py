"""Thousands of traces fall due at once: whoever hands something in, or looks, waits for a moment of it alone."""

from __future__ import annotations

import threading
from functools import partial
from statistics import median, quantiles
from time import process_time

import pytest

from ragmon.config.load import load
from ragmon.server import state
from ragmon.stream.assembler import Assembler, OpenTrace
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.process_usage import cpu_seconds
from tests.support.serving import (
    accounted,
    asked,
    configuration,
    digest,
    foreign,
    get,
    journalled,
    process,
    replayed,
    send_body,
    serving,
    whole,
)
from tests.support.waiting import TIMEOUT, wait_for

DUE, FEW, LARGE = 9000, 3000, 10_000
TOGETHER = 100


def requests(numbers, at=None):
    """Exports of many traces each, of an application that retrieved five documents."""
    for start in range(0, len(numbers), TOGETHER):
        yield export([span for n in numbers[start : start + TOGETHER] for span in traced(n, at)]).SerializeToString()


def traced(number, at=None):
    """A trace whose text is as long as texts are, that ended now or at a time."""
    call, found = foreign(number, at=at)
    documents = {
        f"retrieval.documents.{place}.document.{name}": value
        for place in range(5)
        for name, value in {"id": f"d{place}", "score": 0.5, "content": "what the handbook says of it. " * 15}.items()
    }
    return [call, found._replace(attributes={**found.attributes, **documents})]


def spent(what, clock=process_time):
    """CPU seconds of the process in which the server runs, this one by default, while something is done."""
    began = clock()
    what()
    return clock() - began


@pytest.mark.slow
def test_while_thousands_of_traces_are_assembled_requests_are_acknowledged_and_pages_answer(tmp_path):
    """An acknowledgement takes half a second of CPU at most, a page a quarter, whoever else is at work meanwhile."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        clock = partial(cpu_seconds, running.pid)
        for body in requests(range(DUE)):
            send_body(running, body)
        wait_for(running.books, lambda books: books["scored"])
        acks, pages, number = [], [], DUE
        while running.books()["pending"]:
            number += 1
            record = whole([asked(number)])
            acks.append(spent(lambda record=record: send_body(running, record), clock))
            looks = (lambda path=path: get(f"{running.admin}{path}") for path in ("/metrics", "/healthz"))
            pages += [spent(look, clock) for look in looks]
        books = accounted(running)
        assert (books["received"], books["scored"], books["residual"]) == (number, number, 0)
        assert running.stop() == 0
    verified = ragmon("verify", "--deep", "--state-dir", tmp_path / "state", "--config", tmp_path / "ragmon.toml")
    assert verified.code == 0, verified.err
    assert len(acks) > 3, "they came while traces were assembled"
    # A thread that the machine gives no turn waits while others spend: one in ten may.
    assert quantiles(acks, n=10)[-1] < 0.5, acks
    assert quantiles(pages, n=10)[-1] < 0.25, pages


@pytest.mark.slow
def test_while_one_large_request_is_scored_pages_answer_and_the_books_close(tmp_path, monkeypatch):
    """Ten thousand records in one request, in slices of a millisecond: those that are not scored yet are pending."""
    monkeypatch.setattr(state, "SLICE", 0.001)
    body = whole([asked(number) for number in range(LARGE)])
    with serving(tmp_path) as running:
        send_body(running, body)
        pages, pending = [], []
        while not pending or pending[-1]:
            pages.append(spent(lambda: get(f"{running.admin}/metrics")))
            books = running.books()
            assert books["residual"] == 0, books
            pending.append(books["pending"])
        assert accounted(running)["scored"] == LARGE
        found = digest(running)
    assert replayed(tmp_path) == found
    assert max(pending) > 0, "somebody looked while they were scored"
    assert median(pages) < 0.25, pages


@pytest.mark.slow
def test_a_server_killed_between_two_slices_loses_no_trace_and_doubles_none(tmp_path):
    configuration(tmp_path)
    with process(tmp_path) as running:
        for body in requests(range(FEW)):
            send_body(running, body)
        wait_for(running.books, lambda books: books["scored"] > FEW // 20)
        running.kill()
    scored = len(journalled(tmp_path))
    with process(tmp_path) as running:
        assert accounted(running)["scored"] == FEW
        assert running.stop() == 0
    assert 0 < scored < FEW
    assert {record.trace_id for record in journalled(tmp_path)} == {foreign(n)[0].trace_id for n in range(FEW)}
    assert len(journalled(tmp_path)) == FEW


IN, OUT = threading.Event(), threading.Event()


def hold(text):
    """A redactor that takes its time."""
    IN.set()
    assert OUT.wait(TIMEOUT)
    return text


@pytest.mark.slow
def test_pages_do_not_wait_for_the_trace_that_is_being_assembled(tmp_path):
    IN.clear()
    OUT.clear()
    redacted = f'[capture]\ncontent = "redacted"\nredactors = ["{__name__}:hold"]\n'
    with serving(tmp_path, redacted) as running:
        try:
            send_body(running, export(foreign(1)).SerializeToString())
            assert IN.wait(TIMEOUT)
            shown = running.metrics()
            books = running.books()
        finally:
            OUT.set()
        assert (books["received"], books["pending"], books["residual"]) == (1, 1, 0)
        assert shown['ragmon_accounting_residual{stage="ingest"}'] == 0
        assert accounted(running)["scored"] == 1


@pytest.fixture(name="settings")
def configured(tmp_path):
    return load(configuration(tmp_path), environ={})


class Piece:
    """A span as it came."""

    is_root, service, build = False, None, None

    def __init__(self, span):
        self.trace_id, self.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        self._span = span

    def span(self):
        for _ in range(1000):  # it takes a while to read
            pass
        return self._span


def waiting(number):
    """A trace of very many spans."""
    spans = [foreign(1)[1]._replace(span_id=f"{n + 2:016x}") for n in range(number)]
    return OpenTrace(0.0, 0.0, {piece.span_id: piece for piece in map(Piece, (foreign(1)[0], *spans))})


def test_a_trace_beyond_its_deadline_is_dropped_and_counted(settings):
    """In the middle of its spans: no more of it is read."""
    trace_id, held = bytes.fromhex(foreign(1)[0].trace_id), waiting(20_000)
    longest = 0.05
    found = []
    took = spent(lambda: found.append(Assembler(settings, longest).assemble(trace_id, held)))
    assert found[0].counts.dropped == {"deadline_exceeded": 1}
    assert (found[0].made, found[0].counts.received) == ([], 0)
    assert took < 3 * longest
    whole_one = Assembler(settings).assemble(trace_id, waiting(20))
    assert (len(whole_one.made), whole_one.counts.dropped) == (1, {})
