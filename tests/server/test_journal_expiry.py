"""Retention: what has had its time goes, a little at once, and what stays can be replayed from a saved state."""

from __future__ import annotations

import os
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ragmon.server.journal import _AT_ONCE, Journal, RetentionLimits
from ragmon.server.store import Failure, FailureQuery, JournalRow
from ragmon.testing import FakeClock

DAY = 86_400.0
BULK = os.urandom(100_000)


@pytest.fixture
def clock():
    return FakeClock(1000 * DAY)


@pytest.fixture
def open_journal(tmp_path, clock):
    made = []

    def begin(**limits):
        made.append(Journal(tmp_path, RetentionLimits(**{"retention": 8 * DAY, **limits}), clock=clock))
        return made[-1]

    yield begin
    for journal in made:
        journal.close()


def append(journal, clock, lines=b"{}\n", *, save=False):
    """A row that comes now, and a saved state that is the number of all rows so far."""
    with journal.begin() as batch:
        seq = batch.append(clock(), 1, b"{}", lines)
        if save:
            batch.save(seq, clock(), b"%d" % seq)
    return seq


def expire(journal):
    """Until nothing is left to do; returns in how many steps."""
    for step in range(10_000):
        if not journal.expire():
            return step
    raise AssertionError("it never ends")


def seqs(journal):
    return [row.seq for row in journal.rows()]


def test_rows_that_are_too_old_go_up_to_a_saved_state(open_journal, clock):
    journal = open_journal()
    for _ in range(20):
        clock.advance(DAY)
        append(journal, clock, save=True)
    expire(journal)
    # Row 12 came eight days before row 20: it is as old as the retention, and the state saved with row 11 older.
    assert seqs(journal) == list(range(12, 21))
    assert journal.base().seq == 11


def test_without_a_saved_state_nothing_goes(open_journal, clock):
    journal = open_journal(size=1)
    append(journal, clock, BULK)
    clock.advance(100 * DAY)
    expire(journal)
    assert seqs(journal) == [1]


def test_as_long_as_nothing_was_deleted_a_replay_begins_with_nothing(open_journal, clock):
    journal = open_journal()
    append(journal, clock, save=True)
    assert journal.base() is None
    clock.advance(9 * DAY)
    expire(journal)
    assert seqs(journal) == []
    assert journal.base().seq == 1


def test_a_number_of_a_row_is_never_given_again(open_journal, clock):
    journal = open_journal()
    append(journal, clock, save=True)
    came = clock()
    clock.advance(9 * DAY)
    expire(journal)
    journal.close()
    journal = open_journal()
    assert journal.last() == (1, came)
    assert append(journal, clock) == 2


def test_saved_states_are_the_newest_and_those_an_eighth_of_the_retention_apart(open_journal, clock):
    journal = open_journal()
    for _ in range(10 * 24):
        clock.advance(DAY / 24)
        append(journal, clock, save=True)
        expire(journal)
    kept = [seq for (seq,) in journal._connection.execute("SELECT seq FROM checkpoints ORDER BY seq")]
    assert all(later - earlier == 24 for earlier, later in pairwise(kept[:-1]))
    assert kept[-1] == 240
    assert len(kept) <= 8 + 3
    assert journal.checkpoint().data == b"240"


@pytest.mark.slow
def test_a_journal_that_is_too_large_loses_its_oldest_rows(open_journal, clock):
    journal = open_journal(size=4_000_000)
    for _ in range(200):
        clock.advance(1)
        append(journal, clock, BULK, save=True)
        expire(journal)
    held = len(seqs(journal)) * len(BULK)
    assert 4_000_000 * 6 / 8 < held < 4_000_000
    assert journal.base().seq == seqs(journal)[0] - 1


def test_where_no_saved_state_lies_far_enough_the_newest_is_taken(open_journal, clock):
    journal = open_journal(size=1_000_000)
    for n in range(1, 31):
        append(journal, clock, BULK, save=n == 7)
    expire(journal)
    assert seqs(journal) == list(range(8, 31))


@pytest.mark.slow
def test_the_file_shrinks(open_journal, clock, tmp_path):
    journal = open_journal()
    for _ in range(300):
        append(journal, clock, BULK)
    append(journal, clock, save=True)
    clock.advance(9 * DAY)
    expire(journal)
    assert sum(path.stat().st_size for path in tmp_path.glob("journal.db")) < 1_000_000


def test_a_step_is_small(open_journal, clock):
    """Rows of 30 MB take many steps, and between two of them a row can be written."""
    journal = open_journal()
    for _ in range(300):
        append(journal, clock, BULK)
    append(journal, clock, save=True)
    clock.advance(9 * DAY)
    gone = []
    while journal.expire():
        gone.append(301 - len([seq for seq in seqs(journal) if seq <= 301]))
        append(journal, clock)
    assert max(later - earlier for earlier, later in pairwise(gone)) <= _AT_ONCE / len(BULK) + 1


def test_failures_go_with_their_rows_and_series_with_their_failures(open_journal, clock):
    journal = open_journal()
    for build in ("old", "new"):
        seq = append(journal, clock, save=True)
        with journal.begin() as batch:
            batch.add_failures([Failure(seq, 0, clock(), "shop", "live", {"m": 0.0}, build=build)])
        clock.advance(5 * DAY)
    expire(journal)
    assert [found.build for found in journal.failures(FailureQuery()).failures] == ["new"]
    counts = [journal._connection.execute(f"SELECT count(*) FROM {t}").fetchone()[0] for t in ("failed", "series")]
    assert counts == [2, 1]
    with journal.begin() as batch:
        batch.add_failures([Failure(2, 1, clock(), "shop", "live", {"m": 0.0}, build="old")])
    assert len(journal.failures(FailureQuery(build="old")).failures) == 1


def test_keys_assembled_traces_and_bodies_go_when_their_time_is_over(open_journal, clock):
    journal = open_journal(keys=DAY, assembled=2 * DAY, retention=3 * DAY)
    with journal.begin() as batch:
        batch.claim([(int(clock() // 10), b"k")])
        batch.mark_finished([b"t" * 16], clock())
        batch.add_pending(clock(), "json", b"{}")
    journal.close()
    journal = open_journal(keys=DAY, assembled=2 * DAY, retention=3 * DAY)
    journal._keys._most = 1  # so that the key is put into the table by the next claim
    left = []
    for _ in range(4):
        with journal.begin() as batch:
            batch.claim([(int(clock() // 10) + 5, b"%f" % clock())])
        expire(journal)
        (keys,) = journal._connection.execute("SELECT count(*) FROM keys WHERE substr(key, 6) = x'6B'").fetchone()
        left.append((keys, len(journal.assembled(0)), len(list(journal.pending_requests()))))
        clock.advance(DAY + 20)
    assert left == [(1, 1, 1), (0, 1, 1), (0, 0, 1), (0, 0, 0)]


STEPS = st.lists(
    st.tuples(
        st.floats(0, 3 * DAY),
        st.integers(1, 30).map(lambda n: bytes(n * 4000)),
        st.booleans(),
        st.integers(0, 6),
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.slow
@given(steps=STEPS, size=st.sampled_from([100_000, 600_000, 1 << 40]))
@settings(max_examples=40)
def test_whatever_was_deleted_the_rest_replays_to_the_same_state(tmp_path_factory, steps, size):
    """After any step, also in the middle: base and the rows after it give what all rows would have given."""
    clock, folder = FakeClock(1000 * DAY), tmp_path_factory.mktemp("journal")
    journal = Journal(folder, RetentionLimits(retention=8 * DAY, size=size), clock=clock)
    total = 0
    for waits, lines, save, turns in steps:
        clock.advance(waits)
        with journal.begin() as batch:
            seq = batch.append(clock(), 1, b"{}", lines)
            total += len(lines)
            if save:
                batch.save(seq, clock(), b"%d" % total)
        for _ in range(turns):
            journal.expire()
        for start in (journal.base(), journal.checkpoint()):
            replayed = 0 if start is None else int(start.data)
            rest = list(journal.rows(after=0 if start is None else start.seq))
            assert replayed + sum(len(row.lines) for row in rest) == total
            assert all(isinstance(row, JournalRow) for row in rest)
    journal.close()
