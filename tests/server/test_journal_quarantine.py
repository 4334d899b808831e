"""What is set aside is kept to be looked at: the guilty trace alone, bounded, until it is old or forgotten."""

from __future__ import annotations

import pytest

from ragmon.core.record import Label, QuarantineEntry, decode_entry, encode
from ragmon.server.erasure import erase
from ragmon.server.journal import Journal, RetentionLimits
from ragmon.server.process import ASSEMBLING, READING, Attempts, body_key
from ragmon.server.store import MAX_BYTES, MAX_REQUESTS, JournalReader
from ragmon.testing import make_record
from tests.support.manual_writer import ManualWriter
from tests.support.otlp_requests import as_json, export
from tests.support.serving import foreign

WRITES = {"protobuf": lambda spans: export(spans).SerializeToString(), "json": lambda spans: as_json(export(spans))}
GUILTY, HONEST = foreign(1), foreign(2)
SECRET = b"What is 1?"
TRACE = bytes.fromhex(GUILTY[0].trace_id)


@pytest.fixture(name="journal")
def opened(tmp_path):
    journal = Journal(tmp_path)
    yield journal
    journal.close()


def kept(folder):
    with JournalReader(folder) as journal:
        return list(journal.quarantined())


def hold(journal, body, form="protobuf", step=ASSEMBLING, arrival=1.0):
    """Set the guilty trace of a request aside, and let the request go."""
    with journal.begin() as batch:
        seq = batch.add_pending(arrival, form, body, [TRACE])
        batch.quarantine(TRACE, step, [seq])
        batch.delete_pending([seq])


@pytest.mark.parametrize("form", WRITES)
def test_the_spans_of_the_guilty_trace_alone_are_kept(journal, tmp_path, form):
    hold(journal, WRITES[form]([*GUILTY, *HONEST]), form)
    (one,) = kept(tmp_path)
    assert (one.arrival, one.step, one.trace_id, one.encoding) == (1.0, ASSEMBLING, GUILTY[0].trace_id, form)
    assert (one.size, SECRET in one.body, b"What is 2?" in one.body) == (len(one.body), True, False)


def test_what_cannot_be_read_is_kept_as_it_is(journal, tmp_path):
    hold(journal, b"\xff\xff", step=READING)
    assert [one.body for one in kept(tmp_path)] == [b"\xff\xff"]


def test_a_request_of_many_traces_that_cannot_be_read_is_kept_once_and_all_of_them_count(tmp_path):
    """It may be of ten thousand traces and 16 MiB."""
    with ManualWriter(tmp_path) as manual:
        at = manual.time.now
        for some in ((1, 2, 3), (3, 4)):
            manual.send(WRITES["protobuf"]([span for n in some for span in foreign(n, at=at)]))
        manual.kill()
        with JournalReader(tmp_path / "state") as journal:
            poison = next((one.seq, one.arrival) for one in journal.pending_requests())
        for _ in range(2):
            attempts = Attempts(tmp_path / "state")
            attempts.begin(body_key(*poison))
            attempts.close()
        manual.open()
        manual.tick(10)
        assert (manual.books.received, manual.books.scored, manual.books.dropped) == (4, 1, {"quarantined": 3})
        assert manual.books.residual == 0
    assert [(one.step, SECRET in one.body) for one in kept(tmp_path / "state")] == [(READING, True)]


def test_no_more_is_kept_than_a_hundred_requests_and_16_mib(journal, tmp_path):
    for n in range(MAX_REQUESTS + 5):
        hold(journal, b"\xff%d" % n, step=READING)
    assert [one.body for one in kept(tmp_path)] == [b"\xff%d" % n for n in range(5, MAX_REQUESTS + 5)]
    half = MAX_BYTES // 2 + 1
    for n in range(3):
        hold(journal, b"%d" % n * half, step=READING)
    assert [one.body[:1] for one in kept(tmp_path)] == [b"2"]
    hold(journal, b"3" * (2 * half), step=READING)
    assert [(one.body[:1], one.size) for one in kept(tmp_path)] == [(b"2", half), (b"", 2 * half)], "its size alone"


def test_it_is_deleted_when_it_has_had_its_time(tmp_path):
    now = [0.0]
    journal = Journal(tmp_path, RetentionLimits(retention=100.0), clock=lambda: now[0])
    for arrival in (10.0, 60.0):
        hold(journal, WRITES["protobuf"](GUILTY), arrival=arrival)
    now[0] = 120.0
    while journal.expire():
        pass
    assert [one.arrival for one in kept(tmp_path)] == [60.0]
    journal.close()


@pytest.mark.parametrize("form", WRITES)
def test_a_trace_that_is_forgotten_is_forgotten_there_as_well(journal, tmp_path, form):
    hold(journal, WRITES[form](GUILTY), form)
    hold(journal, WRITES[form](HONEST), form, step=READING)
    hold(journal, WRITES[form]([*GUILTY, *HONEST]), form, step=READING)
    assert erase(tmp_path, trace=GUILTY[0].trace_id).quarantined == 3
    assert [SECRET in one.body for one in kept(tmp_path)] == [False]
    assert not [path for path in tmp_path.iterdir() if SECRET in path.read_bytes()]


@pytest.mark.parametrize(
    ("entry", "was"),
    [
        (make_record("q1", trace_id="0" * 31 + "1"), "record"),
        (Label(trace_id="0" * 31 + "1", rater="ana", correct=True), "label"),
    ],
)
def test_in_the_place_of_a_line_stays_that_it_was(journal, tmp_path, entry, was):
    lines = [encode(make_record("before")), encode(entry), encode(make_record("behind"))]
    with journal.begin() as batch:
        seq = batch.append(5.0, 3, b"{}", b"".join(lines))
    for expected in (True, False):
        with journal.begin() as batch:
            assert batch.quarantine_line(seq, 5.0, 1) is expected, "what is gone is not set aside again"
    with journal.begin() as batch:
        assert not batch.quarantine_line(seq, 6.0, 0), "a row of another time is another row"
        assert not batch.quarantine_line(seq, 5.0, 9)
    (row,) = journal.rows()
    found = row.lines.split(b"\n")
    assert (found[0] + b"\n", found[2] + b"\n", found[3]) == (lines[0], lines[2], b"")
    assert decode_entry(found[1]) == QuarantineEntry(was)
    (one,) = kept(tmp_path)
    assert (one.body + b"\n", one.trace_id, one.step) == (lines[1], entry.trace_id, "scoring")
