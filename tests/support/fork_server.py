"""Commands in forks of a process that has imported ragmon already: a start costs a few milliseconds, not half a second.

What a command sees is its own: arguments, environment, working directory, standard streams, exit. Only the start of the
interpreter is left out; tests that are about it use `command_line.start`. The process forks while it has one thread.
"""

from __future__ import annotations

import atexit
import functools
import gc
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import NoReturn

OF_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "OTEL_", "GRPC_")
"""Variables that are read when Python or a library starts."""
NOT_IMPORTED = ("ragmon.demo", "ragmon.server.grpc", "ragmon.__main__")
"""Modules whose libraries start threads or do not bear a fork; a command that needs one imports it."""
LIMIT = 600.0
"""Seconds after which a command is ended: a machine may be slow."""


def can_run(env):
    """Whether a command with this environment behaves in a fork as it would if it were started.

    Args:
        env: All of its environment.
    """
    mine = {name: value for name, value in os.environ.items() if name.startswith(OF_THE_INTERPRETER)}
    asked = {name: value for name, value in env.items() if name.startswith(OF_THE_INTERPRETER)}
    mine.pop("PYTHONUNBUFFERED", None)
    asked.pop("PYTHONUNBUFFERED", None)
    return hasattr(os, "pidfd_open") and mine == asked


def run(arguments, *, env, cwd=None, say=None):
    """Run a command to its end.

    Args:
        arguments: What stands after `ragmon`.
        env: All of its environment.
        cwd: Its working directory.
        say: What is typed into it; default: nothing, from /dev/null.

    Returns:
        Exit code, output and error output.
    """
    output, error = os.pipe(), os.pipe()
    stdin = (os.open(os.devnull, os.O_RDONLY), None) if say is None else os.pipe()
    with _begun(arguments, env, cwd, (stdin[0], output[1], error[1])) as answers:
        return _followed(answers, (output[0], error[0]), stdin[1], (say or "").encode())


class Command:
    """A command under way, with nothing to read from and nothing said on stdout.

    Args:
        arguments: What stands after `ragmon`.
        env: All of its environment.
        cwd: Its working directory.

    Attributes:
        pid: Its number.
        stderr: What it writes there.
        returncode: Its exit code, once it was waited for.
    """

    def __init__(self, arguments, *, env, cwd=None):
        error = os.pipe()
        streams = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), error[1]
        self._answers = _begun(arguments, env, cwd, streams)
        self.pid = int(self._answers.recv(64))
        self.stderr = open(error[0], encoding="utf-8")  # noqa: SIM115, PTH123 - who reads it closes it
        self.returncode = None

    def send_signal(self, number):
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def wait(self, timeout=LIMIT):
        """Wait for its end; returns its exit code."""
        if self.returncode is None:
            self._answers.settimeout(timeout)
            self.returncode = int(self._answers.recv(64))
            self._answers.close()
        return self.returncode


def _begun(arguments, env, cwd, streams):
    """Have a command started on standard streams, which are closed here; returns where its end is told."""
    mine, theirs = socket.socketpair()
    request = {"arguments": list(map(str, arguments)), "env": env, "cwd": str(cwd or Path.cwd())}
    try:
        socket.send_fds(_server(), [json.dumps(request).encode()], [*streams, theirs.fileno()])
    finally:
        theirs.close()
        for stream in streams:
            os.close(stream)
    mine.settimeout(LIMIT)
    return mine


def _followed(answers, outputs, stdin, said):
    """Exit code and what was written, while what is said is handed in."""
    deadline = time.monotonic() + LIMIT
    texts = dict.fromkeys(outputs, b"")
    pid = int(answers.recv(64))
    open_outputs = set(outputs)
    while open_outputs or stdin is not None:
        left = deadline - time.monotonic()
        readable, writable, _ = select.select(open_outputs, [stdin] if stdin is not None else [], [], max(left, 0))
        if not readable and not writable:
            os.kill(pid, signal.SIGKILL)
            raise subprocess.TimeoutExpired("ragmon", LIMIT)
        for output in readable:
            if chunk := os.read(output, 1 << 16):
                texts[output] += chunk
            else:
                open_outputs.discard(output)
                os.close(output)
        if writable:
            said, stdin = _typed(stdin, said)
    code = int(answers.recv(64))
    return code, *(texts[output].decode() for output in outputs)


def _typed(stdin, said):
    """What is left to be typed, and where; closed once there is nothing or nobody reads."""
    try:
        said = said[os.write(stdin, said[: select.PIPE_BUF]) :] if said else b""
    except BrokenPipeError:
        said = b""
    if said:
        return said, stdin
    os.close(stdin)
    return b"", None


@functools.cache
def _server():
    """The connection to the process that forks; it ends when this one does."""
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mine.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
    atexit.register(process.wait)
    atexit.register(mine.close)  # before it is waited for: it ends when nobody can ask any more
    return mine


# --- the process that forks -------------------------------------------------------------------------------------------


def serve(requests):
    """Fork for each request, and tell who asked how it ended."""
    running = {}
    while True:
        ready, _, _ = select.select([requests, *running], [], [])
        for end in ready:
            if end is not requests:
                _report(end, *running.pop(end))
        if requests not in ready:
            continue
        message, streams, _, _ = socket.recv_fds(requests, 1 << 20, 4)
        if not message:
            return
        *standard, answers = streams
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(json.loads(message), standard)
        os.write(answers, str(pid).encode().ljust(64))
        running[os.pidfd_open(pid)] = pid, answers
        for stream in standard:
            os.close(stream)


def _report(end, pid, answers):
    """Tell an exit code, as `subprocess` gives it."""
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(end)
    try:
        os.write(answers, str(code).encode().ljust(64))
    except BrokenPipeError:
        """Who asked has gone."""
    os.close(answers)


def _become(request, standard) -> NoReturn:
    """Run the command in this fork, and end as an interpreter does."""
    for place, stream in enumerate(standard):
        os.dup2(stream, place)
    os.closerange(3, 256)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = io.TextIOWrapper(open(0, "rb"), encoding="utf-8")  # noqa: SIM115 - as long as the process
    sys.stdout = io.TextIOWrapper(open(1, "wb"), encoding="utf-8")  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), "utf-8", "backslashreplace", write_through=True)  # noqa: SIM115
    sys.argv = [str(Path(sys.executable).with_name("ragmon")), *request["arguments"]]
    from ragmon.cli.main import main  # noqa: PLC0415 - imported long ago

    main()
    sys.exit(0)


def _import_everything():
    """All of ragmon that a command may need."""
    import ragmon  # noqa: PLC0415 - by the process that forks alone

    for found in pkgutil.walk_packages(ragmon.__path__, "ragmon."):
        if not found.name.startswith(NOT_IMPORTED):
            import_module(found.name)


if __name__ == "__main__":
    sys.path[0] = str(Path(sys.executable).parent)  # as of the installed command
    _import_everything()
    threads = Path("/proc/self/status").read_text(encoding="ascii").partition("Threads:")[2].split()[0]
    assert threads == "1", f"{threads} threads: a fork would lose all but one"
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
