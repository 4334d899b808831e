"""Runs an application as its author does: a process of its own in its own folder, asked as its users ask it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.collectors import free_port
from tests.support.command_line import environment
from tests.support.serving import get
from tests.support.waiting import TIMEOUT, wait_for

APPS = Path(__file__).parents[1] / "strangers" / "apps"
LOG = "traces.jsonl"
USERS = 4
"""Users of a web application at the same time."""


@dataclass(frozen=True)
class Ran:
    """What an application left behind.

    Attributes:
        answers: What it said, in the order of the questions; nothing where it answers nobody.
        status: `/api/status` of its monitor after the last answer.
        page: The page for people.
        errors: What it wrote to standard error.
        log: Its trace log.
    """

    answers: list[str]
    status: dict
    page: str
    errors: str
    log: Path


class Terminal:
    """An application that reads a question a line and writes an answer a line."""

    def command(self, app):
        return [app]

    def ask(self, process, questions, errors):
        with ThreadPoolExecutor(1) as pool:
            said = pool.submit(lambda: [process.stdout.readline().rstrip("\n") for _ in questions])
            for question in questions:
                process.stdin.write(f"{question}\n")
            process.stdin.flush()
            return said.result(TIMEOUT)


class Web:
    """An application behind a web server.

    Args:
        server: The server's module and its options, with the application's name to be filled in.
        paths: Where it takes questions, in turn.
        form: Whether it takes them as a form; else as JSON.
        body: Makes the body of a request of its number and its question.
    """

    def __init__(self, server, *paths, form=False, body=lambda number, question: {"question": question}):
        self.server, self.paths, self.form, self.body = server, paths, form, body

    def command(self, app):
        self.port = free_port()
        return ["-m", *(part.format(app=app.stem, port=self.port) for part in self.server)]

    def ask(self, process, questions, errors):
        wait_for(lambda: process.poll() is not None or self._listens())
        assert process.poll() is None, errors.read_text()
        with ThreadPoolExecutor(USERS) as pool:
            return list(pool.map(self._post, range(len(questions)), questions))

    def _listens(self):
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT):
            return True
        return False

    def _post(self, number, question):
        body, path = self.body(number, question), self.paths[number % len(self.paths)]
        kind = "application/x-www-form-urlencoded" if self.form else "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)
        try:
            data = urllib.parse.urlencode(body) if self.form else json.dumps(body)
            connection.request("POST", path, data, {"Content-Type": kind})
            response = connection.getresponse()
            assert response.status == 200, response.read()
            return response.read().decode()
        finally:
            connection.close()


class Queue:
    """Tasks of Celery: all are there before the worker starts, which ends over a file that is not written to its end.

    Args:
        task: The name of the task, which takes a number and a question.
    """

    def __init__(self, task):
        self.task = task

    def command(self, app):
        return ["-m", "celery", "-A", app.stem, "worker", "-P", "prefork", "-c", "2", "--loglevel", "ERROR"]

    def fill(self, app, folder, questions, env):
        """Put all questions into the queue."""
        for name in ("queue", "control"):
            (folder / name).mkdir()
        asking = f"for number, question in enumerate(json.load(sys.stdin)): app.{self.task}.delay(number, question)"
        program = f"import json, sys, {app.stem} as app\n{asking}"
        off, say = {**env, "RAGMON_DISABLED": "1"}, json.dumps(questions)
        subprocess.run([sys.executable, "-c", program], cwd=folder, env=off, input=say, text=True, check=True)

    def ask(self, process, questions, errors):
        return []


UVICORN = ("uvicorn", "{app}:app", "--port", "{port}", "--no-access-log")
GUNICORN = ("gunicorn", "{app}:app", "--bind", "127.0.0.1:{port}")


@contextmanager
def _running(command, folder, env, errors):
    with errors.open("w") as written:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": written, "text": True}
        process = subprocess.Popen(
            [sys.executable, *map(str, command)], cwd=folder, env=env, start_new_session=True, **pipes
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stdout.close()
        process.stdin.close()
        process.wait()


def run(name, folder, questions, users=None, config="", gold=()):
    """Run an application for a while; returns what it left behind.

    Args:
        name: The name of its file.
        folder: Its working directory.
        questions: What it is asked.
        users: How it is asked.
        config: What its author wrote into ragmon.toml.
        gold: The items of the author's gold file, gold.jsonl.
    """
    users, admin, errors = users or Terminal(), f"127.0.0.1:{free_port()}", folder / "errors"
    (folder / "ragmon.toml").write_text(f'{config}\n[serve]\nadmin = "{admin}"\n[export]\njsonl = "{LOG}"\n')
    if gold:
        (folder / "gold.jsonl").write_text("".join(json.dumps(item) + "\n" for item in gold))
    env = environment(RAGMON_SAMPLE="1.0", TMPDIR=str(folder), HOME=str(folder), PYTHONPATH=str(APPS))
    app = APPS / f"{name}.py"
    if isinstance(users, Queue):
        users.fill(app, folder, questions, env)
    with _running(users.command(app), folder, env, errors) as process:
        answers = users.ask(process, questions, errors)
        status = wait_for(
            lambda: _status(admin, process, errors),
            lambda found: found is not None and found["books"]["score"]["scored"] >= len(questions),
        )
        page = get(f"http://{admin}/")[1]
        if isinstance(users, Terminal):
            process.stdin.close()
        else:
            process.send_signal(signal.SIGTERM)
        process.wait(timeout=TIMEOUT)
    return Ran(answers, status, page, errors.read_text(), folder / LOG)


def _status(admin, process, errors):
    assert process.poll() is None, errors.read_text()
    try:
        return json.loads(get(f"http://{admin}/api/status")[1])
    except OSError:
        return None
