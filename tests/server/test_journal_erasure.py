"""Forgetting: what somebody asks to be forgotten is in no file any more, and nothing else is missed."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from ragmon.core.errors import RagmonError
from ragmon.core.record import Ack, Label, Tombstone, decode_entry, encode
from ragmon.server import erasure
from ragmon.server.erasure import erase, remove_traces
from ragmon.server.journal import Journal
from ragmon.server.store import FOREVER, Failure, FailureQuery, FinishedTrace, JournalReader
from ragmon.testing import make_record
from tests.support.waiting import wait_for

MEANT, OTHER = "ab" * 16, "cd" * 16
SECRET = "the-lady-with-the-dog"


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    yield made
    made.close()


def record(trace_id, question="?", **told):
    return make_record("q", trace_id=trace_id, q=question, v=1, **told)


def append(journal, *entries):
    with journal.begin() as batch:
        return batch.append(100.0, len(entries), b"{}", b"".join(map(encode, entries)))


def entries(journal):
    return [decode_entry(line) for row in journal.rows() for line in row.lines.splitlines()]


def on_disk(folder, text):
    """The files in which a text is."""
    return [path.name for path in folder.iterdir() if text.encode() in path.read_bytes()]


def span(trace_id, name):
    return {"traceId": trace_id, "spanId": "11" * 8, "name": name}


def otlp_json(*groups):
    """A request with one process for each group of spans."""
    processes = [{"resource": {"attributes": []}, "scopeSpans": [{"spans": list(spans)}]} for spans in groups]
    return json.dumps({"resourceSpans": processes}, ensure_ascii=False).encode()


def otlp_protobuf(*groups):
    request = ExportTraceServiceRequest()
    for spans in groups:
        scope = request.resource_spans.add().scope_spans.add()
        for told in spans:
            scope.spans.add(trace_id=bytes.fromhex(told["traceId"]), span_id=b"1" * 8, name=told["name"])
    return request.SerializeToString()


def names(form, body):
    if form == "json":
        found = json.loads(body)["resourceSpans"]
        return [[each["name"] for scope in process["scopeSpans"] for each in scope["spans"]] for process in found]
    request = ExportTraceServiceRequest.FromString(body)
    return [[each.name for scope in process.scope_spans for each in scope.spans] for process in request.resource_spans]


WRITES = {"json": otlp_json, "protobuf": otlp_protobuf}


def test_a_trace_is_gone_with_its_labels_and_the_places_of_other_lines_stay(journal, tmp_path):
    kept = record(OTHER), Label(trace_id=OTHER, rater="r", correct=True), Ack(pipeline="p", alert="a", reason="r")
    append(journal, record(MEANT, SECRET), kept[0], Label(trace_id=MEANT, rater="r", comment=SECRET), *kept[1:])
    append(journal, kept[0])
    append(journal, Label(trace_id=MEANT.upper(), rater="r", comment=SECRET))
    done = erase(tmp_path, trace=MEANT)
    assert (done.rows, done.records, done.labels, done.spans, done.wiped, done.unread) == (2, 1, 2, 0, True, [])
    label = Tombstone("label")
    assert entries(journal) == [Tombstone("record"), kept[0], label, *kept[1:], kept[0], label]
    assert [row.n for row in journal.rows()] == [5, 1, 1]
    assert on_disk(tmp_path, SECRET) == []


def test_a_tag_takes_the_records_that_have_it_and_the_labels_and_spans_of_their_traces(journal, tmp_path):
    kept = [record("1" * 32, tags={"user": "7"}), record("2" * 32), record("3" * 32, tags={"users": "8"})]
    append(journal, Label(trace_id=MEANT, rater="r", comment=SECRET))
    append(journal, record(MEANT, SECRET, tags={"user": "8", "lang": "de"}), *kept)
    append(journal, record(None, SECRET, tags={"user": "8"}))
    with journal.begin() as batch:
        batch.add_pending(1.0, "json", otlp_json([span(MEANT, SECRET), span(OTHER, "kept")]))
    done = erase(tmp_path, tag=("user", "8"))
    assert (done.rows, done.records, done.labels, done.spans) == (3, 2, 1, 1)
    assert entries(journal) == [Tombstone("label"), Tombstone("record"), *kept, Tombstone("record")]
    assert on_disk(tmp_path, SECRET) == []


def test_what_is_forgotten_fails_no_gate_any_more(journal, tmp_path):
    seq = append(journal, record(MEANT), record(OTHER))
    with journal.begin() as batch:
        facts = {"signs": [SECRET]}
        batch.add_failures([Failure(seq, 0, 1.0, "shop", "live", {"m": 0.0}, trace_id=MEANT, facts=facts)])
        batch.add_failures([Failure(seq, 1, 1.0, "shop", "live", {"m": 0.0}, trace_id=OTHER)])
        batch.add_failures([Failure(seq + 9, 0, 1.0, "shop", "live", {"m": 0.0}, trace_id=MEANT.upper(), facts=facts)])
    erase(tmp_path, trace=MEANT)
    assert [found.trace_id for found in journal.failures(FailureQuery(metric="m")).failures] == [OTHER]
    assert on_disk(tmp_path, SECRET) == []


@pytest.mark.parametrize("form", WRITES)
def test_spans_that_wait_are_taken_out_of_their_requests(journal, tmp_path, form):
    write, waits = WRITES[form], [bytes.fromhex(MEANT)]
    with journal.begin() as batch:
        batch.add_pending(7.0, form, write([span(MEANT, SECRET), span(OTHER, "kept ü")], [span(MEANT, SECRET)]), waits)
        batch.add_pending(7.0, form, write([span(MEANT, SECRET)]), waits)
        batch.add_pending(7.0, form, write([span(OTHER, "kept")]))
    assert erase(tmp_path, trace=MEANT.upper()).spans == 3
    assert [(body.seq, names(form, body.body)) for body in journal.pending_requests()] == [
        (1, [["kept ü"]]),
        (3, [["kept"]]),
    ]
    done = FinishedTrace(-7.0, 0, FOREVER)
    assert journal.assembled(0) == {bytes.fromhex(MEANT): done}, "a span of it that comes late makes no record"
    assert on_disk(tmp_path, SECRET) == []


@pytest.mark.parametrize("form", WRITES)
def test_a_request_without_spans_of_the_trace_stays_to_the_byte(form):
    body = WRITES[form]([span(OTHER, "kept")], [])
    assert remove_traces(form, body, {MEANT}) == (body, 0)


@pytest.mark.parametrize(("form", "body"), [("json", b"[" * 99_999), ("json", b"{"), ("protobuf", b"\xff"), ("x", b"")])
def test_a_request_that_cannot_be_read_stays_unless_it_names_the_trace(form, body):
    assert remove_traces(form, body, {MEANT, "no hex"}) == (body, 0)
    for name in (MEANT.upper().encode(), bytes.fromhex(MEANT)):
        assert remove_traces(form, body + name, {MEANT}) == (None, 1)


def test_keys_stay_so_that_a_producer_that_sends_again_does_not_bring_it_back(journal, tmp_path):
    with journal.begin() as batch:
        batch.claim([(1, bytes.fromhex(MEANT))])
    erase(tmp_path, trace=MEANT)
    with journal.begin() as batch:
        assert batch.claim([(1, bytes.fromhex(MEANT))]) == {0}


def test_what_is_not_there_is_forgotten_without_a_trace(journal, tmp_path):
    append(journal, record(OTHER))
    done = erase(tmp_path, trace=MEANT)
    assert (done.rows, done.records, done.labels, done.spans, done.wiped) == (0, 0, 0, 0, True)
    assert entries(journal) == [record(OTHER)]


def test_an_id_of_another_program_is_forgotten_as_well(journal, tmp_path):
    append(journal, record("order 7"), record("order 8"))
    assert erase(tmp_path, trace="order 7").records == 1
    assert entries(journal) == [Tombstone(), record("order 8")]


def test_journals_that_were_set_aside_are_named_since_they_may_hold_it(tmp_path):
    (tmp_path / "journal.db").write_bytes(b"garbage" * 1000)
    Journal(tmp_path).close()
    (found,) = erase(tmp_path, trace=MEANT).unread
    assert found.name.startswith("journal.db.corrupt-")


def test_a_user_takes_their_records_and_the_labels_of_their_traces(journal, tmp_path):
    kept = [record("1" * 32, user="7"), record("2" * 32, tags={"user": "8"}), record("3" * 32)]
    append(journal, record(MEANT, SECRET, user="8"), Label(trace_id=MEANT, rater="r", comment=SECRET), *kept)
    append(journal, record(None, SECRET, user="8"))
    done = erase(tmp_path, user="8")
    assert (done.records, done.labels) == (2, 1)
    assert entries(journal) == [Tombstone("record"), Tombstone("label"), *kept, Tombstone("record")]
    assert on_disk(tmp_path, SECRET) == []


@pytest.mark.parametrize("what", [{}, {"trace": MEANT, "tag": ("user", "8")}, {"trace": MEANT, "user": "8"}])
def test_one_of_a_trace_a_tag_and_a_user_is_forgotten(journal, tmp_path, what):
    with pytest.raises(RagmonError, match="nothing says what to delete"):
        erase(tmp_path, **what)


def test_there_must_be_a_journal(tmp_path):
    with pytest.raises(RagmonError, match="no journal in"):
        erase(tmp_path, trace=MEANT)


def test_somebody_who_reads_all_the_while_keeps_the_log_and_it_is_said(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(erasure, "_WIPED_WITHIN", 0.0)
    append(journal, record(MEANT, SECRET))
    with JournalReader(tmp_path) as reader:
        reader._connection.execute("BEGIN")
        reader._connection.execute("SELECT count(*) FROM rows").fetchall()
        assert erase(tmp_path, trace=MEANT).wiped is False
    assert erase(tmp_path, trace=MEANT).wiped is True
    assert on_disk(tmp_path, SECRET) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_whatever_else_is_in_the_journal_the_text_is_in_no_file(tmp_path, seed):
    """Rows of all sizes, written, released and expired around it, so that its pages were split, moved and freed."""
    rng = random.Random(seed)
    journal = Journal(tmp_path)
    journal._keys._most = 50
    meant = [f"{n:032x}" for n in rng.sample(range(300), 20)]
    held = []
    for n in range(300):
        trace = f"{n:032x}"
        text = f"{SECRET} " * rng.choice([1, 3, 40]) if trace in meant else "other " * rng.choice([1, 30, 900])
        others = [record(OTHER, "x" * rng.choice([1, 50, 3000])) for _ in range(rng.randrange(4))]
        lines = [*others, record(trace, text)]
        rng.shuffle(lines)
        seq = append(journal, *lines)
        with journal.begin() as batch:
            batch.claim([(n, rng.randbytes(16)) for _ in range(20)])
            batch.add_failures(
                [Failure(seq, lines.index(lines[-1]), n, "shop", "live", {"m": 0.0}, trace, facts={"q": text})]
            )
            held.append(
                batch.add_pending(1.0, "json", otlp_json([span(trace, text)], [span(OTHER, "y" * rng.randrange(9000))]))
            )
            if len(held) > 30:
                batch.delete_pending([held.pop(rng.randrange(len(held)))])
    for trace in meant:
        erase(tmp_path, trace=trace)
    assert on_disk(tmp_path, SECRET) == []
    assert sum(entry == Tombstone() for entry in entries(journal)) == len(meant)
    journal.close()
    assert on_disk(tmp_path, SECRET) == []


WRITE = """
import sys
from pathlib import Path
from threading import Event
from ragmon.server.journal import Journal
journal, pause = Journal(Path(sys.argv[1])), Event()
line = sys.argv[2].encode() + b"\\n"
other = sys.argv[3].encode() + b"\\n"
for n in range(100_000):
    with journal.begin() as batch:
        batch.append(100.0 + n, 20, b"{}", other * 10 + (line if n < 50 else other) + other * 9)
    if n == 100:
        print("going", flush=True)
    if n > 100:
        pause.wait(0.005)  # as a server does: it writes no row without requests
"""


@pytest.mark.slow
def test_a_server_goes_on_writing_while_somebody_is_forgotten(tmp_path):
    lines = [encode(record(MEANT, SECRET)).decode().strip(), encode(record(OTHER)).decode().strip()]
    writer = subprocess.Popen([sys.executable, "-c", WRITE, str(tmp_path), *lines], stdout=subprocess.PIPE)
    with writer:
        assert writer.stdout.readline() == b"going\n"
        with JournalReader(tmp_path) as reader:
            before = reader.last()[0]
            done = erase(tmp_path, trace=MEANT)
            assert wait_for(reader.last, lambda last: last[0] > before)
            assert writer.poll() is None
        assert (done.rows, done.records, done.wiped) == (50, 50, True)
        assert on_disk(tmp_path, SECRET) == []
        writer.kill()
    journal = Journal(tmp_path)
    rows = list(journal.rows())
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    assert all(row.lines.count(b"\n") == 20 for row in rows)
    journal.close()
