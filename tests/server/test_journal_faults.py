"""A full disk, and processes that are killed: what was acknowledged is there, what was not is not, nobody need help."""

from __future__ import annotations

import random
import subprocess
import sys
import threading

import pytest

from ragmon.core.errors import RagmonError
from ragmon.server.journal import Journal
from ragmon.server.store import JournalError, JournalReader
from tests.support.small_disk import fill
from tests.support.waiting import TIMEOUT

LINES = b"x" * 5000 + b"\n"


def append(journal, n):
    with journal.begin() as batch:
        batch.claim([(1, b"%d" % n)])
        return batch.append(float(n), 1, b"{}", LINES)


def append_until_full(journal):
    """Rows until there is no room; returns how many, and why no more."""
    for n in range(10_000):
        try:
            append(journal, n)
        except JournalError as error:
            return n, error
    raise AssertionError("the disk is never full")


def test_on_a_full_disk_nothing_is_half_written_and_it_goes_on_when_there_is_room(disk):
    journal = Journal(disk / "state")
    ballast = disk / "ballast"
    ballast.write_bytes(bytes(300_000))
    written, error = append_until_full(journal)
    assert (error.reason, journal.last()[0]) == ("disk_full", written)
    fill(ballast)
    for _ in range(3):
        with pytest.raises(JournalError) as again:
            append(journal, written)
        assert again.value.reason == "disk_full"
    assert [row.lines for row in journal.rows()] == [LINES] * written
    with JournalReader(disk / "state") as reader:
        assert len(list(reader.rows())) == written
    ballast.unlink()
    with journal.begin() as batch:
        assert batch.claim([(1, b"%d" % n) for n in range(written + 1)]) == set(range(written))
        assert batch.append(1.0, 1, b"{}", LINES) == written + 1
    journal.close()
    journal = Journal(disk / "state")
    assert journal.set_aside is None
    assert len(list(journal.rows())) == written + 1
    journal.close()


@pytest.mark.parametrize("present", [False, True])
def test_a_journal_cannot_be_opened_on_a_full_disk_and_that_is_said(disk, present):
    if present:
        journal = Journal(disk / "state")
        append(journal, 1)
        journal.close()
    fill(disk / "ballast")
    with pytest.raises(RagmonError, match="no room left for the journal") as refused:
        Journal(disk / "state")
    assert refused.value.reason == "disk_full"
    (disk / "ballast").unlink()
    journal = Journal(disk / "state")
    assert (journal.last()[0], journal.set_aside) == (int(present), None)
    journal.close()


WRITE = """
import sys
from pathlib import Path
from ragmon.server.journal import Journal
from ragmon.server.store import Failure
journal = Journal(Path(sys.argv[1]))
journal._keys._most = 30
for n in range(journal.last()[0] + 1, 1_000_000):
    with journal.begin() as batch:
        taken = batch.claim([(n // 9, b"%d" % n), (n // 9, b"%d again" % n)])
        seq = batch.append(float(n), 1, b"{}", b"%d\\n" % n * (n % 700))
        batch.add_failures([Failure(seq, 0, float(n), "shop", "live", {"m": 0.0})])
        if n % 5 == 0:
            batch.save(seq, float(n), b"%d" % n)
    assert (taken, seq) == (set(), n)
    print(seq, flush=True)
"""


def written_until_killed(folder, after):
    """The last row a process told to be written before it was killed, somewhere in a row after the given one."""
    with subprocess.Popen([sys.executable, "-c", WRITE, str(folder)], stdout=subprocess.PIPE) as writer:
        reached, told = threading.Event(), []

        def listen():
            for line in writer.stdout:
                if line.endswith(b"\n"):
                    told.append(int(line))
                if len(told) >= after:
                    reached.set()
            reached.set()

        listener = threading.Thread(target=listen)
        listener.start()
        assert reached.wait(TIMEOUT)
        writer.kill()
        listener.join()
    assert len(told) >= after, "it ended by itself"
    return told[-1]


@pytest.mark.slow
def test_whenever_it_is_killed_every_acknowledged_row_is_there_once(tmp_path):
    """Twenty times; each process goes on where the one before was killed."""
    rng = random.Random(7)
    last = 0
    for _ in range(20):
        acknowledged = written_until_killed(tmp_path, rng.randint(1, 60))
        journal = Journal(tmp_path)
        rows = list(journal.rows())
        last = journal.last()[0]
        # One that was written and not yet told may be there as well.
        assert acknowledged <= last <= acknowledged + 1
        assert [row.seq for row in rows] == list(range(1, last + 1))
        assert all(row.lines == b"%d\n" % row.seq * (row.seq % 700) for row in rows)
        assert journal.checkpoint() is None or journal.checkpoint().seq == last // 5 * 5
        assert journal.set_aside is None
        journal.close()
    journal = Journal(tmp_path)
    with journal.begin() as batch:
        wanted = [(n // 9, text % n) for n in range(1, last + 2) for text in (b"%d", b"%d again")]
        assert batch.claim(wanted) == set(range(2 * last))
    journal.close()
