"""ragmon as it is used: a script with tasks as JSON lines on stdin.

A task is files in a folder of its own, and steps that run there one after another; the answer is what each step said.
It uses what is documented: the command line, the ports of `ragmon serve`, and, in scripts that steps name, the Python
interface. Each step runs in a fork of this process, which has imported what commands need. The time is `START`, and
stands still.
"""

from __future__ import annotations

import atexit
import base64
import fcntl
import gc
import http.client
import importlib.util
import json
import mmap
import os
import re
import runpy
import select
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path

START = 1_763_690_400.0
"""When every task begins, seconds since 1970: a whole hour."""
LIMIT = 120.0
"""Seconds after which a step is ended: the machine may be slow."""
GOLD = '{"qid": "a", "question": "What?", "answerable": true, "gold_citations": ["d1"]}\n'
TRACE = '{"trace_id": "5a5a5a5a", "qid": "a", "q": "What?", "answer_json": {"claim": "it", "citations": []}}\n'
CONFIG = '[gold.g]\npath = "gold.jsonl"\n[gates]\npreset = "wfgy-eval"\n[gates.hit_rate]\nat_least = 0.5\n'
USUAL = (
    ("replay", "traces.jsonl", "--windows", "--format", "json", "--alerts-out", "alerts.jsonl"),
    ("gate", "traces.jsonl", "--format", "json"),
    ("compare", "traces.jsonl", "--by", "build", "--baseline", "a", "--candidate", "b"),
    ("show", "5a5a5a5a", "traces.jsonl"),
    ("config", "show"),
    ("config", "check"),
    ("generate", "rules"),
)
"""Commands whose modules every fork has."""
clock = memoryview(mmap.mmap(-1, 8)).cast("d")
"""What time it is for this process and its forks, which share the page: it passes only where somebody says so."""


def to_bytes(text):
    """Bytes of a file or a body: text stands for itself, what is no UTF-8 for its bytes."""
    return text.encode("utf-8", "surrogateescape")


def to_text(data):
    """The reverse of `to_bytes`."""
    return data.decode("utf-8", "surrogateescape")


def command(arguments):
    """Run `ragmon` with arguments in this process."""
    sys.argv = ["ragmon", *arguments]
    runpy.run_module("ragmon", run_name="__main__", alter_sys=True)


def call(path, name, arguments):
    """Print what a function of a script returns, as JSON."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.stdout.write(json.dumps(getattr(module, name)(**arguments)))


def begin(work, *arguments, out, err):
    """Have a function run in a fork that ends as an interpreter does; returns its process.

    Args:
        work: The function.
        arguments: What it gets.
        out: The descriptor of its standard output.
        err: That of its errors.
    """
    pid = os.fork()
    if pid:
        return pid
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    os.closerange(3, 256)
    sys.stdin, sys.stdout = open(0), open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1)  # noqa: SIM115
    try:
        work(*arguments)
        code = 0
    except SystemExit as error:
        code = error.code or 0
    except BaseException:  # noqa: BLE001 - the version's own, which is what it says
        traceback.print_exc()
        code = 1
    # As an interpreter ends, but without what the stack of the process that forked still has to do.
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def ended(pid):
    """Wait for a fork; returns its exit code, or the signal that ended it as a negative one."""
    watched = os.pidfd_open(pid)
    if not select.select([watched], [], [], LIMIT)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run(work, *arguments):
    """Exit code, output and errors of a function in a fork."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = ended(begin(work, *arguments, out=out.fileno(), err=err.fileno()))
        out.seek(0)
        err.seek(0)
        return {"exit": code, "out": to_text(out.read()), "err": to_text(err.read())}


def serve(requests):
    """Send requests to a server that runs for them alone, one after another; what it answered, and how it ended."""
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 1 << 20)  # it must never wait for a reader
    pid = begin(command, ["serve", "--config", "ragmon.toml"], out=writing, err=writing)
    os.close(writing)
    with open(reading, "rb") as log:  # noqa: PTH123
        lines = []
        for line in log:
            lines.append(to_text(line).rstrip("\n"))
            if lines[-1] == "ready":
                break
        places = dict(line.split(": ", 1) for line in lines if line.startswith(("otlp: ", "admin: ")))
        answers = [settled(places, **request) for request in requests] if places else []
        os.kill(pid, signal.SIGTERM)
        code = ended(pid)
        said = re.sub(r"(?m)^[-\d]{10} [:,\d]{12} ", "", to_text(log.read())).splitlines()  # lines without their time
    return {"answers": answers, "exit": code, "err": said if places else lines + said}


def settled(places, **request):
    """The answer; an admin port is read until it says the same twice: what is acknowledged is counted a bit later.

    Failing requests are written with the writer's next turn, which an idle server begins after a quarter of a second.
    """
    answer, before = ask(places, **request), None
    pause = 0.4 if request["path"].startswith("/api/records") else 0.05
    for _ in range(50 if request["port"] == "admin" else 0):
        if answer == before:
            break
        time.sleep(pause)
        answer, before = ask(places, **request | {"later": 0.0}), answer
    return answer


def ask(places, *, port, path, method="GET", headers=None, body=None, later=0.0):
    """Status and text of an answer; `body` is in base 64, and so many seconds pass before it is sent."""
    clock[0] += later
    connection = http.client.HTTPConnection(places[port], timeout=LIMIT)
    try:
        data = None if body is None else base64.b64decode(body)
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        return {"status": answer.status, "text": to_text(answer.read())}
    except OSError as error:
        return {"status": type(error).__name__, "text": ""}
    finally:
        connection.close()


@contextmanager
def folder():
    """A folder for a task; forks must not clean up after this process, as `TemporaryDirectory` has it at their exit."""
    path = tempfile.mkdtemp()
    os.chdir(path)
    try:
        yield
    finally:
        os.chdir("/")
        shutil.rmtree(path)


def answer(task):
    """What the steps of a task said, and the files that it is to read."""
    clock[0] = START
    with folder():
        for name, text in task["files"].items():
            Path(name).write_bytes(to_bytes(text))
        said = [step(**asked) for asked in task["steps"]]
        read = {name: to_text(Path(name).read_bytes()) for name in task.get("read", ()) if Path(name).exists()}
    return {"said": said, "read": read}


def step(*, run_command=None, serve_requests=None, call_function=None):
    """What one step said."""
    if run_command is not None:
        return run(command, run_command)
    if serve_requests is not None:
        return serve(serve_requests)
    return run(call, *call_function)


def print_modules():
    """Run the usual commands, and print what modules are there after them."""
    for name, text in {"gold.jsonl": GOLD, "traces.jsonl": TRACE, "ragmon.toml": CONFIG}.items():
        Path(name).write_text(text, encoding="utf-8")
    output, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: PTH123, SIM115
    for arguments in USUAL:
        with suppress(SystemExit):
            command(list(arguments))
    output.write("\n".join(sys.modules))
    output.flush()


def preload():
    """Import what the usual commands import, so that a fork need not."""
    with folder():
        names = run(print_modules)["out"].split()
    for name in names:
        if name not in sys.modules and name.partition(".")[0] not in ("__main__", "__mp_main__"):
            with suppress(ImportError):  # some are made by a module when it runs
                import_module(name)
    threads = Path("/proc/self/status").read_text("ascii").partition("Threads:")[2].split()[0]
    assert threads == "1", f"{threads} threads: a fork would lose all but one"
    gc.freeze()


def main():
    """Answer tasks until there are no more."""
    time.time, time.time_ns = lambda: clock[0], lambda: int(clock[0] * 1e9)
    time.clock_gettime = lambda _: clock[0]  # a server compares it with the time
    passed = time.monotonic
    time.monotonic = lambda: passed() + clock[0] - START  # what is done every minute is done when a minute has passed
    tasks, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a module prints is no answer
    os.umask(0o077)
    preload()
    for line in tasks:
        answers.write(json.dumps(answer(json.loads(line))).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
