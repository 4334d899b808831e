"""Fetch the pinned version of uPlot from npm into the pages' files, or check that they are that version.

Usage: python -m tests.support.vendored [--check]
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "uplot@1.6.32"
DIGEST = "4b8a8191e425658e3ea8c8c1314b0fc679c861ee3a1af2b20c7b16ba50b5133d"
"""SHA-256 of the package as npm has it."""
FILES = {
    "package/dist/uPlot.iife.min.js": "uPlot.iife.min.js",
    "package/dist/uPlot.min.css": "uPlot.min.css",
    "package/LICENSE": "LICENSE",
}
"""What is taken of it."""
PLACE = Path(__file__).parents[2] / "ragmon" / "export" / "static" / "uplot"


def fetched(folder):
    """The files of the package, by their names here.

    Args:
        folder: Where npm may write.

    Raises:
        ValueError: The package is not the one that was pinned.
    """
    done = subprocess.run(["npm", "pack", PACKAGE], cwd=folder, check=True, capture_output=True, text=True)
    archive = Path(folder) / done.stdout.split()[-1]
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != DIGEST:
        raise ValueError(f"{PACKAGE} has the SHA-256 {digest}: it must be {DIGEST}")
    with tarfile.open(archive) as package:
        return {name: package.extractfile(path).read() for path, name in FILES.items()}


def main(arguments):
    """Write the files, or compare them; returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        files = fetched(folder)
    if "--check" in arguments:
        return int(any((PLACE / name).read_bytes() != content for name, content in files.items()))
    PLACE.mkdir(exist_ok=True)
    for name, content in files.items():
        (PLACE / name).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
