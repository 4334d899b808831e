"""Many runs of `python -m ragmon`, in forks of one process that has imported it: a run costs milliseconds.

The process is the interpreter under test; it knows nothing of ragmon but that it is run as a module. Whoever calls
`run_all` hands it a list of runs, and gets what each left behind, with the folder's name written as `FOLDER`.
"""

from __future__ import annotations

import gc
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

LIMIT = 60
"""Seconds after which a run is ended."""


class Run(NamedTuple):
    """One command.

    Attributes:
        arguments: What stands after `ragmon`.
        say: What is typed into it.
        env: More of the environment.
    """

    arguments: Sequence[str]
    say: str = ""
    env: Mapping[str, str] = {}


def run_all(folder: Path, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Exit code, output and error output of each run, all in one working directory, one after another.

    Args:
        folder: The working directory.
        runs: What is run.
    """
    from tests.support.before import environment  # noqa: PLC0415 - not in the process that forks

    asked = json.dumps([[list(run.arguments), run.say, dict(run.env)] for run in runs])
    done = subprocess.run(
        [sys.executable, __file__],
        input=asked.encode(),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        check=True,
    )
    said = json.loads(done.stdout)
    assert not [err for _, _, err in said if Path(__file__).name in err], "a command was not run"
    return [{"code": code, "out": _shown(out, folder), "err": _shown(err, folder)} for code, out, err in said]


def _shown(text: str, folder: Path) -> str:
    return text.replace(str(folder), "FOLDER")


# --- the process that forks -------------------------------------------------------------------------------------------


def main() -> None:
    """Run what stands on stdin; first every command's help and a configuration, so that all is imported."""
    runs = json.load(sys.stdin)
    answers, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO())
    for command in commands():
        _in_this_process([command, "--help"])
    _in_this_process(["config", "show"])
    sys.stdout = answers
    gc.freeze()
    json.dump([_run(*run) for run in runs], sys.stdout)


def commands() -> Iterator[str]:
    """The commands that `ragmon --help` names."""
    section = _in_this_process(["--help"]).partition("\nCommands:\n")[2]
    return iter(re.findall(r"^  (\S+)", section, re.MULTILINE))


def _in_this_process(arguments: list[str]) -> str:
    before, sys.stdout = sys.stdout, io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    sys.argv = ["ragmon", *arguments]
    try:
        runpy.run_module("ragmon", run_name="__main__", alter_sys=True)
    except SystemExit:
        """As every command ends."""
    finally:
        written, sys.stdout = sys.stdout, before
    written.flush()
    return written.buffer.getvalue().decode()


def _run(arguments: list[str], say: str, env: dict[str, str]) -> tuple[int, str, str]:
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(say.encode())
        typed.seek(0)
        pid = os.fork()
        if pid == 0:
            _become(arguments, env, (typed.fileno(), out.fileno(), err.fileno()))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="backslashreplace"))
        return code, *texts


def _become(arguments: list[str], env: dict[str, str], streams: tuple[int, int, int]) -> NoReturn:
    """Run the command in this fork, and end as an interpreter does."""
    for place, stream in enumerate(streams):
        os.dup2(stream, place)
    os.environ |= env
    signal.alarm(LIMIT)
    sys.stdin = io.TextIOWrapper(open(0, "rb"), encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = io.TextIOWrapper(open(1, "wb"), encoding="utf-8")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), "utf-8", "backslashreplace", write_through=True)  # noqa: SIM115
    sys.argv = ["ragmon", *arguments]
    runpy.run_module("ragmon", run_name="__main__", alter_sys=True)
    sys.exit(0)


if __name__ == "__main__":
    main()
