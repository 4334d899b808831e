"""`max_size` holds at full load: by the bytes that were written, whatever the minute and the clock.

What may stand beside it on the disk is at most a quarter of it, and what one row writes: a transaction is in the log as
a whole before anything of it can be moved. Rows are up to 16 MiB of requests; here they are smaller.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from time import thread_time

import pytest

from ragmon.ingest.receiver import Encoding
from ragmon.server.journal import RetentionLimits
from ragmon.server.pending import decode_traces
from tests.support.manual_writer import ManualWriter, body, fingerprint
from tests.support.serving import PROTOBUF, asked, configuration, foreign, post, process, whole
from tests.support.waiting import wait_for

MIB = 1 << 20


def fat(start, n=100, **fields):
    """An export of records of about two kilobytes each."""
    ids = [f"document-{k:04}-{os.urandom(40).hex()}" for k in range(20)]
    return whole(asked(number, retrieved=ids, citations=ids[:1], **fields) for number in range(start, start + n))


def on_disk(folder):
    return sum(path.stat().st_size for path in (folder / "state").glob("journal.db*") if path.exists())


def bounded(size):
    """Bytes a journal of some size may take on the disk, where a row is of a megabyte at most."""
    return 1.25 * size + MIB


@pytest.mark.slow
def test_a_real_server_at_full_load(tmp_path):
    path = configuration(tmp_path)
    path.write_text(path.read_text() + 'max_size = "16MiB"\n')
    sizes, sent = [], 0
    with process(tmp_path) as running:
        for start in range(0, 25_000, 100):
            body = fat(start)
            assert post(f"{running.otlp}/v1/traces", body, PROTOBUF)[0] == 200
            sent += len(body)
            sizes.append(on_disk(tmp_path))
        books = wait_for(running.books, lambda found: found["received"] == 25_000)
    assert sent > 3 * 16 * MIB
    assert max(sizes) < bounded(16 * MIB)
    assert (books["scored"], books["residual"]) == (25_000, 0)


def fill(manual, rows, size, off=0.0):
    """Write rows as the server does, and look at the disk after each; returns the largest it was."""
    largest = 0
    for start in range(rows):
        manual.time.now += 0.05
        manual.time.off = off
        manual.take(decode_traces(fat(100 * start, ts=manual.time.now), Encoding.PROTOBUF))
        manual.writer._keep(ending=False)
        largest = max(largest, on_disk(manual.folder))
    assert 100 * rows * 2000 > 2 * size, "more was written than may stay"
    return largest


@pytest.fixture
def manual(tmp_path):
    with ManualWriter(tmp_path) as found:
        found.writer.journal.limits = RetentionLimits(size=8 * MIB)
        yield found


@pytest.mark.slow
def test_after_a_jump_of_the_clock_as_well(manual):
    """Nothing goes for its age then, but what has no room goes."""
    assert fill(manual, 100, 8 * MIB, off=3600.0) < bounded(8 * MIB)
    assert not manual.writer.clock.calm


@pytest.mark.slow
def test_who_reads_all_the_while_costs_no_rows_that_have_room(manual):
    """The log cannot be moved while a transaction reads, a backup's, say: to delete rows would only lengthen it."""
    with closing(sqlite3.connect(manual.writer.journal.path, isolation_level=None)) as reader:
        for start in range(60):
            if start == 25:
                reader.execute("BEGIN")
                reader.execute("SELECT count(*) FROM rows").fetchone()
            manual.take(decode_traces(fat(100 * start, ts=manual.time.now), Encoding.PROTOBUF))
            manual.writer._keep(ending=False)
        reader.execute("COMMIT")
        (left,) = reader.execute("SELECT sum(length(lines)) FROM rows").fetchone()
    assert left > 8 * MIB / 2


@pytest.mark.slow
def test_what_is_left_counts_and_replays_as_if_nothing_had_gone(manual):
    fill(manual, 100, 8 * MIB)
    assert next(manual.writer.journal.rows()).seq > 1
    assert (manual.books.scored, manual.books.residual) == (10_000, 0)
    assert manual.agrees()
    before = fingerprint(manual.server_state)
    manual.again()
    assert fingerprint(manual.server_state) == before


def test_spans_that_wait_are_never_deleted_for_want_of_room(manual):
    """Rows are deleted beside them, and when their time comes they count, a slice of CPU a turn."""
    texts = {"content": os.urandom(50_000).hex()}
    manual.send(*(body(*foreign(n, at=manual.time.now, **texts)) for n in range(100)))
    assert on_disk(manual.folder) > 8 * MIB
    manual.writer._keep(ending=False)
    assert len(list(manual.writer.journal.pending_requests())) == 100
    manual.tick(60.0)
    for _ in range(100):
        manual.tick()
    assert (manual.books.scored, manual.books.pending, manual.books.residual) == (100, 0, 0)


@pytest.mark.slow
def test_a_smaller_size_holds_soon(manual):
    manual.writer.journal.limits = RetentionLimits(size=64 * MIB)
    fill(manual, 100, 8 * MIB)
    assert on_disk(manual.folder) > 16 * MIB
    manual.writer.journal.limits = RetentionLimits(size=8 * MIB)
    for start in range(20):
        manual.take(decode_traces(fat(10_000 + start, 1, ts=manual.time.now), Encoding.PROTOBUF))
        manual.writer._keep(ending=False)
    assert on_disk(manual.folder) < bounded(8 * MIB)


@pytest.mark.slow
def test_room_is_made_in_steps_that_hold_nobody_up(manual):
    """All the work between two rows, checkpoint included, is a fraction of a second of the processor's time."""
    longest = 0.0
    for start in range(100):
        manual.take(decode_traces(fat(100 * start, ts=manual.time.now), Encoding.PROTOBUF))
        begun = thread_time()
        manual.writer._keep(ending=False)
        longest = max(longest, thread_time() - begun)
    assert longest < 0.25
