"""The command line as people use it: the installed command, in a process of its own."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from pathlib import Path

from tests.support import fork_server
from tests.support.fork_server import LIMIT

SCRIPT = Path(sys.executable).with_name("ragmon")
COMMAND = [str(SCRIPT)] if SCRIPT.exists() else [sys.executable, "-m", "ragmon"]
SMALL = Path(__file__).parents[1] / "data" / "squad2" / "small"
"""200 questions and a real system's answers to them."""


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)

    @property
    def error(self):
        """Error and hint of a command that refused; it must have said nothing else, anywhere."""
        assert (self.code, self.out) == (3, ""), self
        first, *rest = self.err.splitlines()
        assert first.startswith("error: "), self.err
        assert [line.startswith("hint: ") for line in rest] in ([True], []), self.err
        return first.removeprefix("error: "), "".join(rest).removeprefix("hint: ")


def environment(**extra):
    """The environment without anything that would configure ragmon, or spare it what Python buffers.

    Neither is there the size that pytest-xdist gives to every process: terminals have their own.
    """
    foreign = ("RAGMON_", "OTEL_", "PYTHONUNBUFFERED", "COLUMNS", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    return kept | extra


def start(*arguments, env=None, **options):
    """A command under way."""
    command = [*COMMAND, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    options = pipes | {"preexec_fn": _interruptible} | options  # forked before the suite starts threads of its own
    return subprocess.Popen(command, env=environment(**env or {}), **options)


def _interruptible():
    """A suite in the background of a shell ignores Ctrl-C, and its children would inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def ragmon(*arguments, say=None, **options):
    """A command run to its end.

    Args:
        arguments: What stands after `ragmon`.
        say: What is typed into it.
        options: Of `start`; with others than `cwd` and `env` the interpreter is started anew, and not forked.
    """
    everything = environment(**options.get("env") or {})
    if options.keys() <= {"cwd", "env", "preexec_fn"} and fork_server.can_run(everything):
        return Done(*fork_server.run(arguments, env=everything, cwd=options.get("cwd"), say=say))
    stdin = subprocess.DEVNULL if say is None else subprocess.PIPE
    with start(*arguments, stdin=stdin, **options) as process:
        out, err = process.communicate(say, timeout=LIMIT)
    return Done(process.returncode, out or "", err or "")


def on_terminal(stream, *arguments, columns=80, env=None):
    """A command that has a terminal for stdout or stderr, and a pipe for the other one.

    Args:
        stream: `stdout` or `stderr`.
        arguments: What stands after `ragmon`.
        columns: How wide the terminal is.
        env: More of the environment.
    """
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = start(*arguments, env={"TERM": "xterm", "COLUMNS": str(columns), **(env or {})}, **{stream: terminal})
    os.close(terminal)
    drawn = b""
    while chunk := _drawn(screen):
        drawn += chunk
    os.close(screen)
    out, err = process.communicate(timeout=LIMIT)
    seen = {"out": out or "", "err": err or "", stream.removeprefix("std"): drawn.decode()}
    return Done(process.returncode, **seen)


def _drawn(screen):
    """What a terminal got; nothing when its last writer has gone, which Linux reports as an error."""
    try:
        return os.read(screen, 65536)
    except OSError:
        return b""


def lines(path, entries):
    """Write a JSON Lines file; returns its name."""
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return str(path)


def gold(answerable=40, unanswerable=20):
    """Gold items `a0` ... with the answer "right", and `u0` ... without any."""
    for n in range(answerable):
        yield {
            "qid": f"a{n}",
            "question": f"What is {n}?",
            "answerable": True,
            "gold_claim_substr": ["right"],
            "gold_citations": [f"d{n}"],
        }
    for n in range(unanswerable):
        yield {"qid": f"u{n}", "question": f"Who is {n}?", "answerable": False}


def traces(answerable=40, unanswerable=20, *, wrong=(), **fields):
    """A trace of every item of `gold`: right, but for the items `wrong` names, whose claim is not."""
    for n in range(answerable):
        claim = "quite something else" if f"a{n}" in wrong else "that is right"
        cited = {"claim": claim, "citations": [f"d{n}"]}
        yield {"qid": f"a{n}", "retrieved_ids": [f"d{n}", "d999"], "answer_json": cited, **fields}
    for n in range(unanswerable):
        claim = "quite something else" if f"u{n}" in wrong else "not in context"
        cited = {"claim": claim, "citations": ["d999"] if f"u{n}" in wrong else []}
        yield {"qid": f"u{n}", "retrieved_ids": ["d999"], "answer_json": cited, **fields}
