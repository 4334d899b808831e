"""Whatever fails between the acknowledgement of a row and the end of its count: the row is counted, once."""

from __future__ import annotations

import json
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import pytest

from ragmon.core.http_server import RejectedError
from ragmon.core.record import Ack, Latency, Totals
from ragmon.gates.coverage import CaptureLog
from ragmon.ingest.receiver import Encoding
from ragmon.server import state, writer
from ragmon.server.pending import QueuedRequest, decode_labels, decode_traces
from ragmon.server.state import SLICE, ServerState
from tests.support.command_line import ragmon
from tests.support.line_faults import LineFault
from tests.support.manual_writer import ManualWriter, body, fingerprint
from tests.support.serving import (
    PROTOBUF,
    accounted,
    asked,
    digest,
    foreign,
    post,
    replayed,
    send_body,
    serving,
    whole,
)
from tests.support.waiting import wait_for

CONFIG = """
[gold.gold]
path = "gold.jsonl"
pipeline = "support"
[pipelines.support.gates.errors]
metric = "error_rate"
at_most = 0.0
[pipelines.support.gates.precision]
metric = "answer_precision"
at_least = 0.9
[pipelines.support.slices]
lang = ["de"]
"""
GOLD = {
    "qid": "g1",
    "question": "What is it?",
    "answerable": True,
    "gold_claim_substr": ["yes"],
    "gold_citations": ["d1"],
}
RECORDS = 24
"""Records of a row of nothing else."""
ERRORS = (RuntimeError, MemoryError, KeyboardInterrupt)
SAMPLE = 149
"""Of every so many lines the quick test takes one."""
PARTS = 10
"""The slow tests take every line, in so many parts."""


class Trial:
    """A server whose thread is this one: a round is what its thread does until nothing is queued.

    Args:
        folder: Where its configuration and its state lie.
        make: The row it counts.
    """

    def __init__(self, folder, make):
        folder.mkdir()
        (folder / "gold.jsonl").write_text(json.dumps(GOLD))
        self.manual = ManualWriter(folder, CONFIG)
        self.number = self.sent = 0
        self.deliver(mixed)
        self.deliver(plain)
        if make is mixed:
            self.deliver(mixed)  # its trace is complete in the next row

    def deliver(self, make, fault=None):
        """Send requests while the fault is there, and those that are refused again, as producers do."""
        self.number += 1
        self.manual.time.now += 15.0 if make is plain else 61.0  # after a minute there is something to judge
        requests = make(self.number, self.manual.time.now)
        answers = self._round(requests, nullcontext() if fault is None else fault.traced())
        assert {type(error) for error in answers} <= {type(None), RejectedError}, answers
        refused = [request for request, error in zip(requests, answers, strict=True) if error is not None]
        assert not any(self._round([replace(request, future=Future()) for request in refused], nullcontext()))
        self.sent += sum(len(request.native) + bool(request.external) for request in requests)

    def _round(self, requests, traced):
        manual = self.manual.writer
        waiting = [manual._submit(request) for request in requests]
        manual._stopping = True
        with traced:
            manual._run()
        manual._stopping = False
        assert all(future.done() for future in waiting), "nobody waits for ever"
        return [future.exception() for future in waiting]

    def check(self):
        """Everything that was sent counts once, in memory, on disk and in a replay."""
        books = self.manual.books
        assert (books.scored + books.pending, books.dropped, books.residual) == (self.sent, {}, 0), books
        assert books.received == self.sent + books.duplicate, books
        assert self.manual.agrees()
        assert self.manual.verified().holds, self.manual.verified()

    def end(self):
        """A server that begins with this journal counts the same."""
        before = fingerprint(self.manual.server_state), self.manual.books
        self.manual.again()
        assert (fingerprint(self.manual.server_state), self.manual.books) == before
        self.manual.kill()


def plain(number, now):
    """Records of ragmon's own capture, and nothing else."""
    records = [asked(RECORDS * number + place, ts=now, latency_ms=Latency(total=12.0)) for place in range(RECORDS)]
    return [decode_traces(whole(records), Encoding.PROTOBUF)]


def mixed(number, now):
    """Everything else that a row may hold: spans, a record of a gold item, an error, a label, totals, an `Ack`."""
    first = 1_000_000 + 10 * number
    told = asked(
        first, ts=now, q="What is it?", tags={"lang": "de"}, build=f"b{number}", session="s1", contexts=["yes"]
    )
    failed = asked(first + 1, ts=now, error="Timeout")
    label = {"trace_id": failed.trace_id, "correct": False, "rater": "r1"}
    totals = Totals(ts=now, instance="i1", started=now - 9.0, pipeline="support", source="live", calls=number)
    return [
        decode_traces(body(*foreign(number, at=now)), Encoding.PROTOBUF),
        decode_traces(whole([told, failed]), Encoding.PROTOBUF),
        decode_labels([label]),
        QueuedRequest(entries=[totals]),
        QueuedRequest(entries=[Ack(pipeline="support", alert="errors", reason="known", by="r1")]),
    ]


def executed(folder, make):
    """The lines that are executed while such a row is counted, in their order."""
    trial, seen = Trial(folder, make), LineFault()
    trial.deliver(make, seen)
    trial.check()
    trial.end()
    return list(seen.lines)


@pytest.mark.parametrize("make", [plain, mixed])
@pytest.mark.parametrize(
    ("first", "every"), [(0, SAMPLE), *(pytest.param(n, PARTS, marks=pytest.mark.slow) for n in range(PARTS))]
)
def test_an_error_at_any_line_of_the_count_loses_and_doubles_nothing(tmp_path, make, first, every, monkeypatch):
    """Senders that are told so send again; every request has an answer, and a restart comes to the same."""
    monkeypatch.setattr(CaptureLog, "LOOKS", (RECORDS,))  # then the core counts
    monkeypatch.setattr(state, "SLICE", 0.0)  # readers have their turn before each record, whatever the clock says
    places = executed(tmp_path / "clean", make)
    assert len(places) > 150, places
    chosen = [(place, ERRORS[number % len(ERRORS)]) for number, place in enumerate(places)]
    for number, (place, error) in enumerate(chosen[first::every]):
        trial, fault = Trial(tmp_path / f"{number}", make), LineFault(place, error)
        trial.deliver(make, fault)
        assert fault.raised, place
        try:
            trial.check()
            trial.end()
        except AssertionError as wrong:
            raise AssertionError(f"{error.__name__} at {place}") from wrong


class Broken:
    """Something that raises an error instead of what it does, as long as it is broken.

    Args:
        does: What it does.
        error: The error.
    """

    def __init__(self, does, error):
        self.is_broken, self.raised = True, 0
        self._does, self._error = does, error

    def __call__(self, *arguments, **named):
        if self.is_broken:
            self.raised += 1
            raise self._error
        return self._does(*arguments, **named)

    def __get__(self, instance, owner=None):
        return self if instance is None else partial(self, instance)


def export(number):
    """An export of 300 records of their own."""
    return whole([asked(300 * number + place) for place in range(300)])


@pytest.mark.parametrize("error", [OSError, pytest.param(SystemExit, marks=pytest.mark.slow)])
def test_an_error_while_readers_have_their_turn_loses_no_acknowledged_record(tmp_path, monkeypatch, error):
    """The log names the error itself; a server that begins with the journal finds all of it."""
    monkeypatch.setattr(state, "SLICE", 0.0)
    broken = Broken(writer.sleep, error)
    with serving(tmp_path) as running:
        send_body(running, whole([asked(5000)]))
        monkeypatch.setattr(writer, "sleep", broken)
        assert post(f"{running.otlp}/v1/traces", export(0), PROTOBUF)[0] == 200
        wait_for(lambda: broken.raised)
        broken.is_broken = False
        monkeypatch.setattr(state, "SLICE", SLICE)
        for number in range(1, 4):
            send_body(running, export(number))
        assert running.settled(1201)["scored"] == 1201
        assert wait_for(lambda: running.get("/readyz"), lambda answer: answer[0] == 200)[1] == "ok\n"
        counted = accounted(running), digest(running)
    assert replayed(tmp_path) == counted[1]
    with serving(tmp_path) as running:
        assert (accounted(running)["scored"], digest(running)) == (1201, counted[1])
    assert verified(tmp_path) == 0


def verified(folder):
    """The exit code of `ragmon verify`."""
    return ragmon("verify", "--deep", "--state-dir", folder / "state", "--config", folder / "ragmon.toml").code


@pytest.mark.slow
def test_while_rows_cannot_be_counted_nothing_is_acknowledged_shown_or_saved(tmp_path, monkeypatch, caplog):
    """What was acknowledged before is counted as soon as it can be."""
    monkeypatch.setattr(writer, "PAUSE", 0.05)
    broken = Broken(ServerState.apply, MemoryError())
    with serving(tmp_path) as running:
        send_body(running, export(0))
        assert accounted(running)["scored"] == 300
        monkeypatch.setattr(ServerState, "apply", broken)
        assert post(f"{running.otlp}/v1/traces", export(1), PROTOBUF)[0] == 200
        wait_for(lambda: broken.raised > 3)
        assert running.get("/readyz") == (503, "an error left rows on disk uncounted; they are being counted again\n")
        assert running.get("/healthz")[0] == 200
        assert post(f"{running.otlp}/v1/traces", export(2), PROTOBUF)[0] == 503
        assert {running.get(path)[0] for path in ("/metrics", "/api/status", "/")} == {503}
        assert running.server.writer.journal.checkpoint() is None
        assert "MemoryError at" in caplog.text
        broken.is_broken = False
        assert wait_for(lambda: running.get("/readyz"), lambda answer: answer[0] == 200)[1] == "ok\n"
        send_body(running, export(2))
        assert accounted(running)["scored"] == 900
    assert verified(tmp_path) == 0


def test_a_server_that_is_stopped_while_rows_are_uncounted_leaves_them_to_the_next_one(tmp_path, monkeypatch):
    broken = Broken(ServerState.apply, RuntimeError())
    with serving(tmp_path) as running:
        monkeypatch.setattr(ServerState, "apply", broken)
        assert post(f"{running.otlp}/v1/traces", export(0), PROTOBUF)[0] == 200
        wait_for(lambda: broken.raised > 1)
    broken.is_broken = False
    with serving(tmp_path) as running:
        assert accounted(running)["scored"] == 300
    assert verified(tmp_path) == 0


def test_a_checkpoint_that_lacks_records_is_found_by_verify_and_named_by_readyz(tmp_path):
    with ManualWriter(tmp_path) as manual:
        manual.send(whole([asked(n, ts=manual.time.now) for n in range(10)]))
        manual.server_state.engine.scorer.state.scored -= 3
        manual.save()
    assert verified(tmp_path) == 1
    with serving(tmp_path) as running:
        status, text = running.get("/readyz")
        assert (status, "does not account for: 3" in text) == (200, True), text
