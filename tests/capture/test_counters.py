"""Counters that outlive their process: safe on full disks and in shared folders, told once and by their own user."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from ragmon.capture import worker
from ragmon.capture.worker import KEPT, CounterFile, read_counts, reap
from ragmon.core import process as private_files
from ragmon.core.process import default_folder
from tests.support.waiting import TIMEOUT


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "ragmon-0" / "identity"


def told(folder):
    """What is told of processes that are gone."""
    found = []
    reap(folder, lambda lost: found.append(lost) or True)
    return found


LEAVE = """
import os, sys
from pathlib import Path
from ragmon.capture.worker import CounterFile
page = CounterFile(Path(sys.argv[1]))
for _ in range(7):
    page.count(0)
page.give(3)
page.commit(2, {"export_failed": 1}, given=3)
page.give(1, "0af7651916cd43dd8448eb211c80319c")
os._exit(0)
"""


def leave(folder):
    subprocess.run([sys.executable, "-c", LEAVE, str(folder)], check=True, timeout=TIMEOUT)


def test_what_a_process_counted_is_there_after_it_left(folder):
    leave(folder)
    (lost,) = told(folder)
    assert (lost.kept, lost.delivered, lost.dropped, lost.doubtful) == (7, 2, {"export_failed": 1}, 1)
    assert (lost.missing, lost.doubt) == (4, "0af7651916cd43dd8448eb211c80319c")
    assert told(folder) == [], "it is told once"


def test_what_could_not_be_told_stays_for_the_next(folder):
    leave(folder)
    reap(folder, lambda lost: False)
    assert len(told(folder)) == 1


def test_the_page_of_a_living_process_is_its_own(folder):
    page = CounterFile(folder)
    assert told(folder) == []
    assert read_counts(next(folder.iterdir()).read_bytes()).instance == page.instance
    page.close()
    assert not folder.parent.exists(), "empty folders are taken away"


def test_threads_have_columns_of_their_own_and_give_them_back():
    """More threads at once than there are columns: the last ones share one."""
    page, barrier = CounterFile(), threading.Barrier(worker.THREADS + 5)

    def count():
        page.count(KEPT)
        barrier.wait(timeout=TIMEOUT)
        page.count(KEPT)

    for _ in range(2):
        threads = [threading.Thread(target=count) for _ in range(barrier.parties)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert page.total(KEPT) == 4 * barrier.parties
    assert len(page._free_columns) == len(set(page._free_columns)) == worker.THREADS


OTHERS = """
import sys
from pathlib import Path
from ragmon.capture.worker import CounterFile, reap
folder = Path(sys.argv[1])
print("ready", flush=True)
while True:
    {does}
"""


@pytest.mark.slow
@pytest.mark.parametrize("does", ["reap(folder, lambda lost: True)", "CounterFile(folder).close()"])
def test_a_process_that_begins_keeps_its_page_whatever_others_do_meanwhile(folder, does):
    """A page is unlocked for a moment after it was made, and whoever closes the last page takes the folder away."""
    command = [sys.executable, "-c", OTHERS.format(does=does), str(folder)]
    kept = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        for _ in range(1000):
            page = CounterFile(folder)
            kept.append(page._path is not None and page._path.exists())
            page.close()
        process.kill()
    assert kept == [True] * 1000


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_afterlife(tmp_path):
    (tmp_path / "file").write_text("no folder")
    page = CounterFile(tmp_path / "file" / "identity")
    page.count(KEPT)
    assert page.total(KEPT) == 1
    page.close()


def test_a_machine_without_a_temporary_folder_has_no_pages(monkeypatch):
    def nowhere():
        raise FileNotFoundError

    monkeypatch.setattr(private_files.tempfile, "gettempdir", nowhere)
    assert default_folder("identity") is None


@pytest.mark.parametrize("what", ["writable by others", "a link"])
def test_a_folder_that_is_not_this_users_alone_is_not_used(folder, tmp_path, what):
    """The temporary folder is everybody's: somebody else may have been there first."""
    if what == "a link":
        (tmp_path / "elsewhere").mkdir()
        folder.parent.symlink_to(tmp_path / "elsewhere")
    else:
        folder.parent.mkdir()
        folder.parent.chmod(0o777)
    page = CounterFile(folder)
    assert page._path is None
    assert not folder.exists()
    page.close()


def test_what_is_no_page_is_not_read(folder, tmp_path):
    """A link to a device without end, a file of another version, half a file."""
    leave(folder)
    (folder / "a.page").symlink_to("/dev/zero")
    (folder / "b.page").write_bytes(b"x" * 100)
    (folder / "c.page").mkdir()
    assert [lost.kept for lost in told(folder)] == [7]
    assert (folder / "a.page").is_symlink()


FULL = """
set -e
mount -t tmpfs -o size=8k tmpfs "$1" || exit 77
status=0
TMPDIR="$1" "$2" -c '
import ragmon
from ragmon.testing import Collected
@ragmon.trace(sample=1.0)
def answer(question):
    return question
sink = Collected()
installation = ragmon.install(sink=sink)
answer("q")
assert installation.flush(30)
assert len(sink.records) == 1
' || status=$?
umount "$1"
exit $status
"""


def test_a_full_temporary_folder_kills_no_process(tmp_path):
    """A store into a hole of a file on a full disk would end the process by SIGBUS."""
    done = subprocess.run(
        ["/bin/sh", "-c", FULL, "sh", str(tmp_path), sys.executable],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("mounting a small disk takes rights that are missing here")
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(tmp_path.iterdir())
