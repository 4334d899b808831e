"""`python -m bench.serve.phoenix`: the same spans to ragmon and to Arize Phoenix, CPU seconds of each server's process.

Phoenix is installed into a virtual environment of its own (`.venv-phoenix`, about 800 MB). It stores and indexes every
span, ragmon scores and journals records: not the same job, but the same spans, taken live.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import tempfile
import venv
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from urllib.error import URLError
from urllib.request import urlopen

from bench.serve import bodies
from bench.serve.durable import CONFIG, TICKS, Server

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".venv-phoenix"
PACKAGE = "arize-phoenix>=20.26,<21"
BATCHES = 8
PORTS = (16006, 14317)
PATIENCE = 120.0


def cpu(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def post(place: str, sent: list[bytes]) -> None:
    """Send requests one after the other."""
    connection = HTTPConnection(place, timeout=PATIENCE)
    for body in sent:
        connection.request("POST", "/v1/traces", body, {"Content-Type": "application/x-protobuf"})
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 200, answer.status


def quiet(pid: int) -> float:
    """CPU seconds of a process once it does no more work."""
    before, deadline = cpu(pid), monotonic() + PATIENCE
    while monotonic() < deadline:
        sleep(3.0)
        now = cpu(pid)
        if now - before < 0.05:
            break
        before = now
    return cpu(pid)


def ragmon(sent: list[bytes]) -> float:
    """CPU seconds ragmon takes."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "ragmon.toml").write_text(CONFIG)
        server = Server(Path(name))
        before = quiet(server.process.pid)
        post(server.otlp, sent)
        sleep(6.0)  # a trace is complete when nothing of it came for five seconds
        took = quiet(server.process.pid) - before
        with urlopen(f"http://{server.admin}/api/status", timeout=PATIENCE) as answer:
            books = json.load(answer)["books"]["ingest"]
        assert books["scored"] == len(sent) * bodies.SPANS // 2, books
        server.end(signal.SIGTERM)
    return took


def phoenix(sent: list[bytes]) -> float:
    """CPU seconds Phoenix takes, until every span is in its database."""
    with tempfile.TemporaryDirectory() as name:
        environment = {
            "PATH": os.defpath,
            "HOME": name,
            "PHOENIX_WORKING_DIR": name,
            "PHOENIX_HOST": "127.0.0.1",
            "PHOENIX_PORT": str(PORTS[0]),
            "PHOENIX_GRPC_PORT": str(PORTS[1]),
            "PHOENIX_TELEMETRY_ENABLED": "false",
        }
        command = [str(FOLDER / "bin" / "phoenix"), "serve"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _until_it_answers(process)
            before = quiet(process.pid)
            post(f"127.0.0.1:{PORTS[0]}", sent)
            return quiet(process.pid) - before
        finally:
            process.terminate()
            process.wait()


def _until_it_answers(process: subprocess.Popen[bytes]) -> None:
    deadline = monotonic() + PATIENCE
    while True:
        try:
            urlopen(f"http://127.0.0.1:{PORTS[0]}/healthz", timeout=PATIENCE).close()
        except (URLError, ConnectionError):
            assert process.poll() is None, "Phoenix has ended"
            assert monotonic() < deadline, "Phoenix does not answer"
            sleep(0.5)
        else:
            return


def main() -> None:
    """Print what a span costs each of them."""
    if not (FOLDER / "bin" / "phoenix").exists():
        venv.create(FOLDER, with_pip=True)
        (FOLDER / ".gitignore").write_text("*\n")
        subprocess.run([str(FOLDER / "bin" / "pip"), "install", "--quiet", PACKAGE], check=True)
    rng = random.Random(5)
    spans = BATCHES * bodies.SPANS
    ours = ragmon(bodies.openinference(rng, BATCHES)) / spans * 1e6
    theirs = phoenix(bodies.openinference(rng, BATCHES)) / spans * 1e6
    print(f"ragmon {ours:.0f} us a span, Phoenix {theirs:.0f}: {theirs / ours:.0f} times as much (asked: 100)")


if __name__ == "__main__":
    main()
