"""A real disk of 1 MB for tests, and what fills it."""

from __future__ import annotations

import os
import subprocess

import pytest


@pytest.fixture(name="disk")
def small_disk(tmp_path):
    """A disk of 1 MB."""
    if os.geteuid():
        pytest.skip("mounting a small disk takes rights that are missing here")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", tmp_path], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no small disk can be mounted here: {made.stderr.decode().strip()}")
    yield tmp_path
    subprocess.run(["umount", tmp_path], check=True)


def fill(path):
    """Take what room is left."""
    with path.open("ab", buffering=0) as file:
        for size in (4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue
