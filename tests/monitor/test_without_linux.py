"""Systems that lack what only Linux has, as macOS does: capture and the server do without it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import urllib.request

import pytest

from ragmon.core.process import allocate
from tests.support.collectors import free_port
from tests.support.command_line import environment
from tests.support.waiting import TIMEOUT, wait_for

LACKING = """
import os
del os.posix_fallocate, os.sched_getaffinity
"""


def without_linux(code, folder, **options):
    """A program in a process where those functions are not there."""
    command = [sys.executable, "-c", textwrap.dedent(LACKING) + textwrap.dedent(code)]
    env = environment(TMPDIR=str(folder))
    return subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)


@pytest.mark.parametrize("held", [b"", b"what is there", b"x" * 4096])
def test_a_file_gets_its_size_and_keeps_its_content(tmp_path, monkeypatch, held):
    monkeypatch.delattr(os, "posix_fallocate")
    path = tmp_path / "page"
    path.write_bytes(held)
    file = os.open(path, os.O_RDWR)
    allocate(file, 4096)
    os.close(file)
    assert path.read_bytes() == held.ljust(4096, b"\0")


@pytest.mark.slow
def test_calls_are_captured_without_the_functions_of_linux(tmp_path):
    program = """
    from pathlib import Path
    import ragmon
    installation = ragmon.install(sink=ragmon.testing.Collected(), strict=True)
    answer = ragmon.trace(lambda question: "At 9.")("When?")
    print(answer, len(list(Path().glob("ragmon-*/*/*.page"))), installation.shutdown())
    """
    out, err = without_linux(program, tmp_path).communicate(timeout=TIMEOUT)
    assert (out, err) == (b"At 9. 1 True\n", b"")  # its counters lie in a file


@pytest.mark.slow
def test_a_server_runs_without_the_functions_of_linux(tmp_path):
    admin = free_port()
    ports = f'admin = "127.0.0.1:{admin}"\notlp = "127.0.0.1:{free_port()}"\ngrpc = "127.0.0.1:{free_port()}"\n'
    (tmp_path / "ragmon.toml").write_text(f"[serve]\n{ports}", encoding="utf-8")
    serve = "from ragmon.cli.main import main\nmain(['serve', '--config', 'ragmon.toml'])"
    process = without_linux(serve, tmp_path)
    try:
        wait_for(lambda: process.poll() is not None or answers(admin))
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/status") as answer:
            assert json.load(answer)["gates"] == []
    finally:
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 0, err
    assert b"Traceback" not in err


def answers(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return answer.status == 200
    except OSError:
        return False
