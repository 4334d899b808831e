"""Bad input must not cost memory: over-long lines, bombs, and very many bad lines."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import zstandard

from tests.support.trace_files import good, write

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PEAK = """
from pathlib import Path

def peak():
    # Not getrusage: a child's maximum begins with what its parent held when it was started.
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
"""

MEMORY = """
import sys
from ragmon.ingest.files import read_files, splittable
from ragmon.ingest.files import ReadSummary
from ragmon.ingest.files import byte_ranges

small, big = sys.argv[1:]

def read(path):
    intake = ReadSummary()
    seen = [record.qid for record in read_files([path], intake)]
    if splittable(path):
        byte_ranges(path, 7)
    return seen, intake.rejected

read(small)
before = peak()
print(*read(big))
print(peak() - before)
"""


def spaced(path):
    """A plain file with a line of 100 MB in the middle; the hole in it takes no room on the disk."""
    with path.open("wb") as file:
        file.write(good(1) + b'{"q":"')
        file.seek(100 << 20, 1)
        file.write(b'"}\n' + good(2))


def bomb(path):
    """A gzip file whose one long line is a thousand times as long as the file."""
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(good(1) + b'{"q":"')
        for _ in range(200):
            file.write(b"x" * (1 << 20))
        file.write(b'"}\n' + good(2))
    assert path.stat().st_size < 1 << 20


def zstd_bomb(path):
    """The densest zstd there is, by hand: blocks of four bytes that stand for 128 KiB each, a gigabyte in all."""
    block = 1 << 1 | (128 << 10) << 3
    header = b"\x28\xb5\x2f\xfd\x00\x58"
    long = header + (block.to_bytes(3, "little") + b"x") * 8000 + (block | 1).to_bytes(3, "little") + b"x"
    path.write_bytes(zstandard.compress(good(1)) + long + zstandard.compress(b"\n" + good(2)))


@pytest.mark.slow
@pytest.mark.parametrize("make", [spaced, bomb, zstd_bomb])
def test_a_line_of_a_hundred_megabytes_costs_a_count_and_no_memory(tmp_path, make):
    """Also while a plain file is cut into ranges for several processes."""
    big = tmp_path / "big"
    make(big)
    small = write(tmp_path / {spaced: "small.jsonl", bomb: "small.gz", zstd_bomb: "small.zst"}[make], good())
    command = [sys.executable, "-c", PEAK + MEMORY, small, str(big)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == "['q1', 'q2'] {'oversize': 1}"
    assert float(said[1]) < 32


MANY_REJECTS = """
import gc, sys
from tests.support.trace_files import scorer
from ragmon.monitor.replay import run_files

run_files([sys.argv[1]], scorer)
before = peak()
run = run_files([sys.argv[2]], scorer)
print(run.intake.rejections, peak() - before)
assert gc.isenabled()
"""


def test_two_hundred_thousand_bad_lines_are_forgotten_one_by_one(tmp_path):
    """The garbage collector rests during a replay, so a rejected line must not leave a cycle behind."""
    bad = b'{"qid":tru}\n{"qid":true}\n{"qid":"\xff"}\n{"ts":NaN}\n'  # a NaN is read, and nothing is left
    files = [write(tmp_path / "small.jsonl", bad), write(tmp_path / "big.jsonl", bad * 50_000)]
    command = [sys.executable, "-c", PEAK + MANY_REJECTS, *files]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    rejected, megabytes = done.stdout.split()
    assert int(rejected) == 200_000
    assert float(megabytes) < 16
