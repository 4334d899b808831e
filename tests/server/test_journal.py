"""The journal: what a transaction writes is there, all of it or nothing, for this process and for others beside it."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial

import pytest

from ragmon.core.errors import RagmonError
from ragmon.server import store
from ragmon.server.erasure import erase
from ragmon.server.journal import Journal
from ragmon.server.store import (
    FOREVER,
    Checkpoint,
    FinishedTrace,
    JournalError,
    JournalReader,
    JournalRow,
    PendingRequest,
)
from ragmon.testing import FakeClock

LINES = b'{"v":1,"qid":"a"}\n'


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "state"


@pytest.fixture
def journal(folder):
    made = Journal(folder, clock=FakeClock())
    yield made
    made.close()


def append(journal, *lines, arrival=100.0):
    """One row; returns its number."""
    with journal.begin() as batch:
        return batch.append(arrival, len(lines), b"{}", b"".join(lines))


def test_what_a_transaction_wrote_is_there_after_the_journal_is_opened_again(journal, folder):
    with journal.begin() as batch:
        assert batch.append(100.0, 1, b'{"received":1}', LINES) == 1
        assert batch.append(101.0, 2, b"{}", LINES * 2) == 2
        assert batch.add_pending(101.5, "json", b"{}") == 1
        batch.mark_finished([b"t" * 16], 102.0)
        batch.save(2, 102.0, b"state")
    journal.close()
    journal = Journal(folder)
    assert list(journal.rows()) == [
        JournalRow(1, 100.0, 1, b'{"received":1}', LINES),
        JournalRow(2, 101.0, 2, b"{}", LINES * 2),
    ]
    assert journal.oldest() == 100.0
    assert list(journal.pending_requests()) == [PendingRequest(1, 101.5, "json", b"{}")]
    assert journal.assembled(since=102.0) == {b"t" * 16: FinishedTrace(102.0, 0, FOREVER)}
    assert journal.assembled(since=102.1) == {}
    assert journal.checkpoint() == Checkpoint(2, 102.0, b"state")
    assert journal.last() == (2, 101.0)
    assert journal.set_aside is None
    journal.close()


def test_a_transaction_that_fails_leaves_nothing(journal):
    append(journal, LINES)

    def half():
        with journal.begin() as batch:
            batch.claim([(1, b"k")])
            batch.append(200.0, 1, b"{}", LINES)
            batch.add_pending(200.0, "json", b"{}")
            raise KeyError("the caller's own")

    with pytest.raises(KeyError):
        half()
    assert journal.last() == (1, 100.0)
    assert list(journal.pending_requests()) == []
    with journal.begin() as batch:
        assert batch.claim([(1, b"k")]) == set()
        assert batch.append(300.0, 0, b"{}", b"") == 2


def test_errors_of_the_caller_are_not_taken_for_errors_of_the_journal(journal):
    def broken():
        with journal.begin():
            raise OSError("the caller's own")

    with pytest.raises(OSError, match="the caller's own"):
        broken()


def test_two_transactions_at_once_are_a_mistake_and_harm_neither(journal):
    with journal.begin() as batch:
        batch.append(1.0, 1, b"{}", LINES)
        with pytest.raises(RuntimeError), journal.begin():
            pass
    assert journal.last() == (1, 1.0)


def test_rows_are_read_after_a_number(journal):
    for _ in range(5):
        append(journal, LINES)
    assert [row.seq for row in journal.rows(after=1)] == [2, 3, 4, 5]
    assert [row.seq for row in journal.rows(after=5)] == []


def test_the_last_row_before_a_moment_is_found(journal):
    for arrival in (10.0, 20.0, 20.0, 30.0):
        append(journal, LINES, arrival=arrival)
    assert [journal.last_before(moment) for moment in (5, 10, 11, 20, 21, 30, 99)] == [0, 0, 1, 1, 3, 3, 4]


def test_nothing_is_in_a_new_journal(journal):
    assert (journal.last(), journal.checkpoint(), journal.base(), journal.last_before(1e9)) == ((0, 0.0), None, None, 0)
    assert (list(journal.rows()), list(journal.pending_requests()), journal.assembled(0)) == ([], [], {})
    assert journal.oldest() is None


def test_a_body_that_is_released_is_gone_and_its_number_is_never_given_again(journal):
    with journal.begin() as batch:
        first, second = batch.add_pending(1.0, "json", b"1"), batch.add_pending(1.0, "json", b"2")
    with journal.begin() as batch:
        batch.delete_pending([second, first, 77])
        assert batch.add_pending(2.0, "json", b"3") == second + 1
    assert [body.body for body in journal.pending_requests()] == [b"3"]


def test_the_newest_checkpoint_that_can_be_read_counts(journal):
    append(journal, LINES)
    for seq in (1, 2, 3):
        append(journal, LINES)
        with journal.begin() as batch:
            batch.save(seq, seq * 1e6, b"state %d" % seq)
    journal._connection.execute("UPDATE checkpoints SET data = x'00' WHERE seq = 3")
    assert journal.checkpoint() == Checkpoint(2, 2e6, b"state 2")


def test_only_its_owner_can_read_the_journal(folder):
    old = os.umask(0)
    try:
        journal = Journal(folder)
        append(journal, LINES)
    finally:
        os.umask(old)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(
        ["journal.db", "journal.db-wal", "journal.db-shm", "journal.lock", "journal.attempts"], 0o600
    )
    journal.close()


def test_the_thread_that_opens_the_journal_need_not_be_the_one_that_writes_it(journal):
    writer = threading.Thread(target=append, args=(journal, LINES))
    writer.start()
    writer.join()
    assert journal.last()[0] == 1


HOLD = """
import sys
from pathlib import Path
from ragmon.server.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("open", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_the_folder_until_that_one_is_killed(folder):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"open\n"
        with pytest.raises(RagmonError, match=f"in use by process {holder.pid}") as refused:
            Journal(folder)
        assert "state_dir" in refused.value.hint
        holder.kill()
    Journal(folder).close()


@pytest.mark.parametrize("version", [2, 5])
def test_a_journal_of_another_version_is_refused_and_neither_changed_nor_held(folder, monkeypatch, version):
    with monkeypatch.context() as other:
        other.setattr(store, "VERSION", version)
        journal = Journal(folder)
        append(journal, LINES)
        journal.close()
    file = folder / "journal.db"
    before = file.read_bytes()
    for opens in (Journal, JournalReader, partial(erase, trace="ab" * 16), Journal):
        with pytest.raises(RagmonError) as refused:
            opens(folder)
        assert str(refused.value).startswith(
            f"{file} is of version {version}, and this ragmon reads and writes version 1"
        )
        assert "use the ragmon that wrote it, or another `state_dir`" in refused.value.hint
    assert file.read_bytes() == before
    assert [path for path in folder.iterdir() if "corrupt" in path.name] == []


def test_a_journal_whose_tables_cannot_all_be_created_has_none(folder, monkeypatch):
    with monkeypatch.context() as full:
        full.setattr(store, "TABLES", store.TABLES + "INSERT INTO meta VALUES (zeroblob(2000000000), 1);")
        with pytest.raises(JournalError):
            Journal(folder)
        with closing(sqlite3.connect(folder / "journal.db")) as connection:
            assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    journal = Journal(folder)
    assert append(journal, LINES) == 1
    journal.close()


def test_others_read_beside_the_one_who_writes_and_see_what_is_on_disk(journal, folder):
    append(journal, LINES)
    with JournalReader(folder) as reader, journal.begin() as batch:
        batch.append(101.0, 1, b"{}", LINES)
        assert [row.seq for row in reader.rows()] == [1]
    with JournalReader(folder) as reader:
        rows = reader.rows()
        assert next(rows).seq == 1
        append(journal, LINES)
        assert [row.seq for row in rows] == [2, 3]
        assert reader.last() == (3, 100.0)


def test_a_reader_that_pauses_does_not_keep_the_log_from_being_cut(journal, folder):
    for _ in range(3):
        append(journal, LINES)
    with JournalReader(folder) as reader:
        rows = reader.rows()
        next(rows)
        blocked, *_ = journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        assert not blocked
        assert len(list(rows)) == 2


def test_a_reader_cannot_write(journal, folder):
    with JournalReader(folder) as reader, pytest.raises(Exception, match="readonly database"):
        reader._connection.execute("DELETE FROM rows")


def test_a_journal_nobody_writes_is_read_as_well(folder):
    journal = Journal(folder)
    append(journal, LINES)
    journal.close()
    with JournalReader(folder) as reader:
        assert [row.lines for row in reader.rows()] == [LINES]


def test_where_there_is_no_journal_none_is_made(tmp_path):
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(RagmonError, match="no journal in"):
            JournalReader(folder)
    assert list(tmp_path.iterdir()) == []
