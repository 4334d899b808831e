"""Several processes of one application, as servers start them: all run, and one monitor counts the calls of all.

The pipeline is the README's. The application writes a byte for each call, so that the number of calls is known.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.waiting import TIMEOUT, wait_for

README = Path(__file__).parents[2] / "README.md"
PIPELINE = re.search(r"import ragmon\n\n(@ragmon\.trace\n.*?)\ninstallation = ", README.read_text(), re.DOTALL)[1]
COMMON = f"""
import os
import ragmon

{PIPELINE}
installation = ragmon.install()
calls = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

def called():
    os.write(calls, b"x")
    return answer("Does X support null keys?")
"""
ASGI = """
from fastapi import FastAPI

app = FastAPI()

@app.get("/{number}")
def ask(number: int):
    return {**called(), "pid": os.getpid()}

@app.get("/kill/leader")
def kill():
    if installation.monitor is None:
        return {"pid": 0}
    os.kill(os.getpid(), 9)
"""
WSGI = """
import json

def app(environ, start_response):
    body = json.dumps({**called(), "pid": os.getpid()}).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""
TASKS = """
from celery import Celery

app = Celery("application", broker="filesystem://")
app.conf.broker_transport_options = {
    "data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "control", "polling_interval": 0.05,
}
app.conf.worker_hijack_root_logger = False

@app.task
def ask(number):
    called()
"""
QUESTIONS = 400
WARNING = "several processes share this monitor"


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


class Application:
    """A program in a folder, its web port, and the admin port of the monitor that its processes share.

    Args:
        folder: The folder.
        program: What follows the pipeline.
        command: A module to run, and its arguments.
        log: Whether there is a trace log.
        before: A program that runs in the folder first.
    """

    def __init__(self, folder, program, *command, log=True, before=""):
        self.folder, self.web, self.admin = folder, free_port(), free_port()
        export = '[export]\njsonl = "trace.jsonl"\n' if log else ""
        (folder / "ragmon.toml").write_text(f'[serve]\nadmin = "127.0.0.1:{self.admin}"\n{export}')
        (folder / "application.py").write_text(COMMON + program)
        self.environment = {**os.environ, "TMPDIR": str(folder), "RAGMON_SAMPLE": "1.0"}
        del self.environment["RAGMON_STRICT"]
        self.errors = folder / "stderr"
        off = {**self.environment, "RAGMON_DISABLED": "1"}
        subprocess.run([sys.executable, "-c", before], cwd=folder, env=off, check=True, timeout=TIMEOUT)
        arguments = [sys.executable, "-m", *(argument.format(port=self.web) for argument in command)]
        with self.errors.open("w") as errors:
            self.process = subprocess.Popen(
                arguments, cwd=folder, env=self.environment, stdout=errors, stderr=errors, start_new_session=True
            )

    def get(self, path="/1", port=None):
        """The answer; None where there is no server, or it ended meanwhile."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.web, timeout=TIMEOUT)
        try:
            connection.request("GET", path)
            return connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            assert self.process.poll() is None, self.errors.read_text()
            return None
        finally:
            connection.close()

    def ask(self, questions=QUESTIONS):
        """How many questions each process answered."""
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: self.get(f"/{number}"), range(questions)))
        return Counter(json.loads(answer)["pid"] for answer in answers if answer)

    @property
    def calls(self):
        """The calls that the application counted."""
        assert self.process.poll() is None or self.process.returncode == 0, self.errors.read_text()
        return (self.folder / "calls").stat().st_size

    def counts(self):
        """What `/metrics` says was received, scored, pending and lost, and how many calls there were."""
        page = (self.get("/metrics", self.admin) or b"").decode()
        found = Counter()
        for name, labels, value in re.findall(r"^(\w+)\{([^}]*)\} (\S+)$", page, re.MULTILINE):
            stage = re.search(r'stage="(\w+)"', labels)
            found[f"{stage[1]} {name}" if stage else name] += float(value)
        return found

    def end(self, number=signal.SIGTERM):
        """End it in order; returns what it wrote."""
        self.process.send_signal(number)
        self.process.wait(timeout=TIMEOUT)
        return self.errors.read_text()

    def account(self):
        """Records in the trace log, and losses told there: of each process the last word, once all have ended."""
        finish = "import ragmon; assert ragmon.install('ragmon.toml').flush(60)"
        subprocess.run(
            [sys.executable, "-c", finish], cwd=self.folder, env=self.environment, check=True, timeout=TIMEOUT
        )
        delivered, losses = 0, {}
        for line in (self.folder / "trace.jsonl").read_text().splitlines():
            entry = json.loads(line)
            if entry.get("kind") != "totals":
                delivered += 1
            elif entry["dropped"]:
                losses[entry["instance"]] = sum(entry["dropped"].values())
        return delivered, sum(losses.values())


@pytest.fixture
def run(tmp_path):
    """Starts an application, and ends it with all its processes."""
    started = []

    def start(program, *command, **how):
        started.append(Application(tmp_path, program, *command, **how))
        return started[-1]

    yield start
    for application in started:
        if application.process.poll() is None:
            os.killpg(application.process.pid, signal.SIGKILL)
            application.process.wait()


def uvicorn(*options):
    return ("uvicorn", "application:app", "--port", "{port}", "--no-access-log", *options)


def gunicorn(*options):
    return ("gunicorn", "application:app", "--bind", "127.0.0.1:{port}", "--workers", "4", *options)


def all_are_shown(application):
    """The calls of all processes are at the one address, scored or counted as lost, each once."""
    calls = application.calls

    def closed(found):
        ended = found["capture ragmon_records_scored_total"] + found["capture ragmon_records_dropped_total"]
        told = min(found["score ragmon_records_received_total"], found["rag_requests_total"])
        return ended >= calls and told >= ended

    found = wait_for(application.counts, closed)
    received, lost = found["capture ragmon_records_received_total"], found["capture ragmon_records_dropped_total"]
    assert found["rag_requests_total"] == received == calls
    assert found["capture ragmon_records_scored_total"] + lost == received
    assert found["score ragmon_records_scored_total"] == found["capture ragmon_records_scored_total"]
    assert found["capture ragmon_accounting_residual"] == found["capture ragmon_records_pending"] == 0


def next_process(application, pid):
    """The process that answers after another one, once it does."""
    answer = wait_for(application.get, lambda answer: answer and json.loads(answer)["pid"] != pid)
    return json.loads(answer)["pid"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "command"),
    [
        (ASGI, uvicorn("--workers", "4")),
        (WSGI, gunicorn()),
        (WSGI, gunicorn("--worker-class", "gthread", "--threads", "4")),
        (WSGI, gunicorn("--preload")),
        (WSGI, gunicorn("--worker-class", "gevent")),
        (WSGI, gunicorn("--worker-class", "gevent", "--preload", "--max-requests", "60")),
    ],
    ids=["uvicorn", "gunicorn sync", "gunicorn gthread", "gunicorn preload", "gunicorn gevent", "gevent preload"],
)
def test_the_workers_of_a_server_share_one_monitor_that_counts_every_call(run, program, command):
    application = run(program, *command, log=False)
    wait_for(application.get)
    answered = application.ask().total()
    # A worker of gevent that is recycled breaks the connections that wait for it.
    assert answered == QUESTIONS or "--max-requests" in command, "every question is answered"
    all_are_shown(application)
    written = application.end()
    assert "Traceback" not in written
    forked = "--preload" in command  # its master forked them, outlives them, and need not say anything
    assert (WARNING in written) is not forked


FORKS = """
import json, os, sys, time
if sys.argv[1] == "gevent":
    from gevent import monkey
    monkey.patch_all()
import ragmon

@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "citations": []}

def ask(name, calls):
    for number in range(calls):
        answer(f"{name} {number}")
        if number % 10 == 0:
            time.sleep(0.01)

installation = ragmon.install("ragmon.toml")
children = []
for name in range(6):
    ask(f"parent {name}", 100)
    child = os.fork()
    if not child:
        ask(f"child {name}", 50)
        done = installation.flush(60) and installation.shutdown()
        os._exit(0 if done else 1)
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
assert installation.flush(60)
stages = installation.monitor.snapshot().stages
assert installation.shutdown()
print(json.dumps({name: [stage.received, stage.scored] for name, stage in stages.items()}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["threads", "gevent"])
def test_a_forked_child_leaves_to_its_parent_what_the_parent_began(tmp_path, kind):
    """Gevent's greenlets outlive a fork: the parent's would send its records again, and answer its requests."""
    (tmp_path / "ragmon.toml").write_text('[serve]\nadmin = "127.0.0.1:0"\n[capture]\ncontent = "full"\n')
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", FORKS, kind]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT
    )
    assert json.loads(done.stdout) == {"score": [900, 900], "capture": [900, 900]}
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_when_the_process_that_scores_is_killed_another_one_takes_over(run):
    application = run(ASGI, *uvicorn("--workers", "4"))
    wait_for(application.get)
    application.ask(100)
    all_are_shown(application)
    wait_for(lambda: application.get("/kill/leader"), lambda answer: answer is None)
    before = application.calls
    assert application.ask(200).total() == 200
    since = application.calls - before
    found = wait_for(
        application.counts,
        lambda found: (
            min(found["score ragmon_records_scored_total"], found["capture ragmon_records_scored_total"]) >= since
        ),
    )
    assert found["capture ragmon_accounting_residual"] == 0
    application.end()
    delivered, lost = application.account()
    assert delivered + lost == application.calls


@pytest.mark.slow
def test_a_server_that_reloads_goes_on_counting_at_the_same_address(run):
    application = run(ASGI, *uvicorn("--reload"))
    pid = next_process(application, None)
    for _ in range(2):
        application.ask(50)
        file = application.folder / "application.py"
        file.write_text(file.read_text() + "\n# changed\n")
        pid = next_process(application, pid)
    before = application.calls
    application.ask(50)
    found = wait_for(
        application.counts, lambda found: found["score ragmon_records_scored_total"] >= application.calls - before
    )
    assert found["capture ragmon_accounting_residual"] == 0
    assert "Traceback" not in application.end()
    delivered, lost = application.account()
    assert delivered + lost == application.calls


@pytest.mark.slow
def test_tasks_in_forked_workers_of_celery_are_all_counted(run, tmp_path):
    for name in ("queue", "control"):
        (tmp_path / name).mkdir()
    # All tasks are there before the worker: it ends over a file of this broker that is not written to its end.
    ask = "import application\nfor number in range(200): application.ask.delay(number)"
    command = ("celery", "-A", "application", "worker", "-P", "prefork", "-c", "4", "--loglevel", "ERROR")
    application = run(TASKS, *command, before=ask)
    wait_for(lambda: application.calls, lambda calls: calls == 200)
    all_are_shown(application)
    assert "Traceback" not in application.end()
    delivered, lost = application.account()
    assert delivered + lost == 200
