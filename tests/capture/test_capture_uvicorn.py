"""An application under uvicorn that is told to end: what it captured is delivered, though exit handlers do not run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from ragmon.capture.counters import read
from tests.capture.test_capture_ends import CONFIG
from tests.support.waiting import TIMEOUT

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "processes.md"
ASKED = 60
SLOW = """
import time


class Slow:
    def submit(self, record):
        time.sleep(0.02)
        with open("delivered", "a") as file:
            file.write("one\\n")


"""
"""A sink that is behind when the process is told to end."""
SIGNALS = """
import ragmon
from fastapi import FastAPI

ragmon.install()
ragmon.install_signal_handlers()
app = FastAPI()


@app.get("/ask")
@ragmon.trace
def ask(question: str):
    return {"answer": "Rollo ruled it first [1]", "citations": ["n#1"]}
"""


def documented():
    """The example of the documentation that has a lifespan."""
    (found,) = re.findall(r"^```python\n([^`]*lifespan[^`]*)^```$", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    return found


def asked_and_told_to_end(folder, program):
    """Serve a program with uvicorn's own command, ask it, and end it; returns its exit code."""
    (folder / "ragmon.toml").write_text(CONFIG)
    (folder / "application.py").write_text(program)
    environment = {**os.environ, "TMPDIR": str(folder), "RAGMON_SAMPLE": "1.0"}
    command = [sys.executable, "-m", "uvicorn", "application:app", "--port", "0", "--no-access-log"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        place = next(found[1] for line in process.stderr if (found := re.search(r"running on (http://[\d.:]+)", line)))
        for number in range(ASKED):
            with urllib.request.urlopen(f"{place}/ask?question={number}", timeout=TIMEOUT) as answer:
                answer.read()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=TIMEOUT)
    return process.returncode


@pytest.mark.slow
@pytest.mark.parametrize("program", [documented(), SIGNALS], ids=["lifespan", "signal handlers"])
def test_whatever_was_asked_is_delivered_when_uvicorn_ends(tmp_path, program):
    code = asked_and_told_to_end(tmp_path, SLOW + program.replace("install()", "install(sink=Slow())"))
    assert code in (0, -signal.SIGTERM)
    assert len((tmp_path / "delivered").read_text().splitlines()) == ASKED
    page = read(next(tmp_path.rglob("*.page")))
    assert (page.kept, page.delivered, page.missing) == (ASKED, ASKED, 0)
