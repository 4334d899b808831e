"""Damage: no file, however broken, waits for somebody to repair it, and none that broke is thrown away."""

from __future__ import annotations

import os
import random
import shutil

import pytest

from ragmon.core.errors import RagmonError
from ragmon.server import store
from ragmon.server.journal import Journal, RetentionLimits
from ragmon.server.store import Failure, FailureQuery, JournalError, JournalReader
from ragmon.testing import FakeClock

NOW = 1_700_000_000.0
ASIDE = "journal.db.corrupt-20231114T221320Z"
LINES = b'{"v":1,"qid":"a"}\n'


@pytest.fixture
def clock():
    return FakeClock(NOW)


def fill(folder, rows=40):
    """A journal with something in every table."""
    journal = Journal(folder, clock=FakeClock(NOW))
    journal._keys._most = 20
    for n in range(1, rows + 1):
        with journal.begin() as batch:
            batch.claim([(17 * 10**7 + n % 5, b"%d" % (100 * n + m)) for m in range(10)])
            batch.append(NOW + n, 10, b"{}", LINES * (n % 7) * 40)
            batch.add_pending(NOW, "json", b"{}" * n * 50)
            batch.mark_finished([b"%016d" % n], NOW)
            batch.add_failures([Failure(n, m, NOW, f"p{m}", "live", {"m": 0.0}, build=f"b{n % 3}") for m in range(5)])
            batch.save(n, NOW + n, b"state" * 100)
    journal.close()


def use(journal):
    """Everything a server does."""
    with journal.begin() as batch:
        batch.claim([(17 * 10**7 + n % 5, b"%d" % n) for n in range(500)])
        batch.append(NOW, 1, b"{}", LINES)
        batch.add_pending(NOW, "json", b"{}")
        batch.mark_finished([b"%016d" % 3], NOW)
        batch.add_failures([Failure(10**6, m, NOW, "p1", "live", {"m": 0.0}) for m in range(5)])
        batch.save(journal.last()[0], NOW, b"state")
    journal.checkpoint()
    journal.base()
    journal.last_before(NOW)
    for what in (journal.rows(), journal.pending_requests(), journal.assembled(0)):
        list(what)
    for query in (
        FailureQuery(),
        FailureQuery(metric="m", pipeline="p1", build="b1"),
        FailureQuery(since=NOW, limit=3),
    ):
        journal.failures(query)
    journal.limits = RetentionLimits(retention=-1000.0, size=1, keys=-1000.0, assembled=-1000.0)
    for _ in range(200):
        if not journal.expire():
            break


def aside(folder):
    return sorted(path.name for path in folder.glob("journal.db.corrupt-*"))


BREAKS = {
    "garbage": lambda path: path.write_bytes(b"no database at all\n" * 500),
    "another magic": lambda path: patch(path, 0, b"SQLite format 4"),
    "half of it": lambda path: os.truncate(path, path.stat().st_size // 2 + 17),
    "a few bytes": lambda path: os.truncate(path, 50),
    "zeros in the first page": lambda path: patch(path, 100, bytes(3000)),
    "zeros from the second page on": lambda path: patch(path, 4096, bytes(path.stat().st_size - 4096)),
    "another version in one place": lambda path: patch(path, 60, (9).to_bytes(4, "big")),
}


def patch(path, place, found):
    with path.open("r+b") as file:
        file.seek(place)
        file.write(found)


@pytest.mark.slow
@pytest.mark.parametrize("how", BREAKS)
def test_a_broken_file_is_set_aside_and_a_new_one_begun(tmp_path, clock, how):
    fill(tmp_path)
    BREAKS[how](tmp_path / "journal.db")
    broken = (tmp_path / "journal.db").read_bytes()
    journal = Journal(tmp_path, clock=clock)
    assert journal.set_aside == tmp_path / ASIDE
    assert journal.set_aside.read_bytes() == broken
    assert (journal.last(), list(journal.rows()), journal.checkpoint()) == ((0, 0.0), [], None)
    use(journal)
    journal.close()


def test_an_empty_file_is_a_new_journal(tmp_path):
    (tmp_path / "journal.db").touch()
    journal = Journal(tmp_path)
    assert journal.set_aside is None
    use(journal)
    journal.close()


def test_what_is_beside_a_broken_file_goes_with_it(tmp_path, clock):
    fill(tmp_path / "first")
    journal = Journal(tmp_path / "first", clock=clock)
    with journal.begin() as batch:
        batch.append(NOW, 1, b"{}", LINES)
    shutil.copytree(tmp_path / "first", tmp_path / "second")  # as a crash would leave it
    journal.close()
    BREAKS["garbage"](tmp_path / "second" / "journal.db")
    Journal(tmp_path / "second", clock=clock).close()
    assert aside(tmp_path / "second") == [ASIDE, f"{ASIDE}-shm", f"{ASIDE}-wal"]


def test_a_log_without_its_file_is_not_taken_for_the_log_of_a_new_one(tmp_path, clock):
    """As it would be left by a crash between two renames."""
    fill(tmp_path / "first")
    journal = Journal(tmp_path / "first", clock=clock)
    with journal.begin() as batch:
        batch.append(NOW, 1, b"{}", LINES)
    shutil.copytree(tmp_path / "first", tmp_path / "second")
    journal.close()
    (tmp_path / "second" / "journal.db").unlink()
    journal = Journal(tmp_path / "second", clock=clock)
    assert list(journal.rows()) == []
    assert aside(tmp_path / "second") == [f"{ASIDE}-shm", f"{ASIDE}-wal"]
    journal.close()


def test_two_that_broke_in_the_same_second_are_both_kept(tmp_path, clock):
    for _ in range(2):
        (tmp_path / "journal.db").write_bytes(b"garbage" * 1000)
        Journal(tmp_path, clock=clock).close()
    assert aside(tmp_path) == [ASIDE, f"{ASIDE}-2"]


def test_a_folder_where_the_file_should_be_is_no_damage(tmp_path):
    """It is somebody's mistake: that is said, and nothing is renamed."""
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(JournalError) as refused:
        Journal(tmp_path)
    assert refused.value.reason == "io"
    assert aside(tmp_path) == []


def test_damage_found_late_is_told(tmp_path, clock, monkeypatch):
    """A file too large to be read as a whole when it is opened, with one page that is nothing any more."""
    fill(tmp_path)
    monkeypatch.setattr(store, "_CHECKED", 0)
    with JournalReader(tmp_path) as reader:
        find = "SELECT rootpage FROM sqlite_master WHERE name = 'bodies'"
        (page,) = reader._connection.execute(find).fetchone()
    patch(tmp_path / "journal.db", (page - 1) * 4096, b"\xff" * 4096)
    journal = Journal(tmp_path, clock=clock)
    assert journal.set_aside is None
    with pytest.raises(JournalError) as found:
        list(journal.pending_requests())
    assert found.value.reason == "corrupt"
    assert journal.quarantine_and_reset() == tmp_path / ASIDE
    use(journal)
    journal.close()


def test_a_new_file_goes_on_with_the_numbers_of_the_one_that_broke(tmp_path, clock):
    fill(tmp_path, rows=3)
    journal = Journal(tmp_path, clock=clock)
    assert journal.quarantine_and_reset() == tmp_path / ASIDE
    assert journal.last() == (3, NOW + 3)
    assert list(journal.rows()) == []
    with journal.begin() as batch:
        batch.save(3, NOW + 3, b"what was known")
        assert batch.append(NOW + 4, 1, b"{}", LINES) == 4
    journal.close()
    journal = Journal(tmp_path, clock=clock)
    assert [row.seq for row in journal.rows(after=journal.checkpoint().seq)] == [4]
    assert journal.base() == journal.checkpoint()
    journal.close()


def test_a_reader_of_a_broken_file_says_so_and_leaves_it(tmp_path):
    fill(tmp_path)
    BREAKS["garbage"](tmp_path / "journal.db")
    with pytest.raises(JournalError) as found:
        JournalReader(tmp_path)
    assert found.value.reason == "corrupt"
    assert aside(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_whatever_bytes_flip_the_journal_works_or_says_that_it_is_damaged(tmp_path, clock, seed, monkeypatch):
    """Forty files a seed: in each a run of bytes is changed; the file is not checked as a whole in half of them."""
    rng = random.Random(seed)
    fill(tmp_path / "whole")
    found, reasons = [], set()
    for n in range(40):
        folder = tmp_path / str(n)
        shutil.copytree(tmp_path / "whole", folder)
        path = folder / "journal.db"
        size = path.stat().st_size
        for _ in range(rng.randint(1, 4)):
            patch(path, rng.choice([rng.randrange(100), rng.randrange(size)]), rng.randbytes(rng.choice([1, 4, 300])))
        monkeypatch.setattr(store, "_CHECKED", (n % 2) << 24)
        journal = Journal(folder, clock=clock)
        try:
            use(journal)
        except JournalError as error:
            reasons.add(error.reason)
            journal.quarantine_and_reset()
            use(journal)
        found.append(journal.set_aside is not None)
        journal.close()
        shutil.rmtree(folder)
    assert any(found)
    assert reasons <= {"corrupt"}


def test_what_cannot_be_set_aside_is_tried_again_when_something_is_written(tmp_path, clock, monkeypatch):
    fill(tmp_path)
    journal = Journal(tmp_path, clock=clock)
    with monkeypatch.context() as broken:
        broken.setattr(store, "check", _no_room)
        with pytest.raises(JournalError) as found:
            journal.quarantine_and_reset()
        assert found.value.reason == "disk_full"
        with pytest.raises(JournalError), journal.begin():
            pass
    with journal.begin() as batch:
        assert batch.append(NOW, 1, b"{}", LINES) == 41
    journal.close()


def _no_room(*_):
    raise OSError(28, "No space left on device")


def test_errors_have_a_reason_a_file_and_a_hint(tmp_path):
    with pytest.raises(RagmonError) as refused:
        raise JournalError("disk_full", tmp_path / "journal.db", "said")
    assert str(refused.value) == f"{tmp_path}/journal.db: there is no room left for the journal (said)"
    assert refused.value.hint == "free some: a running server continues by itself"
