# ruff: noqa: INP001
"""The whole chain on this machine, without containers: the demo's application, ragmon, Prometheus and Alertmanager.

`make stack`; with a fault after a minute: `make stack ARGS="--incident index_drift"`. Everything listens on loopback,
keeps its state in a temporary folder, and ends with Ctrl-C. What Alertmanager tells people is printed here.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import monotonic
from typing import Final

import yaml

from ragmon.demo.show import INCIDENTS

HERE: Final = Path(__file__).resolve().parent
GOLD: Final = HERE.parent / "ragmon" / "demo" / "gold.jsonl"
PORTS: Final = {"otlp": 4318, "grpc": 4317, "admin": 9464, "prometheus": 9090, "alertmanager": 9093}
READY: Final = {"admin": "/readyz", "prometheus": "/-/ready", "alertmanager": "/-/ready"}
PATIENCE: Final = 60.0
"""Seconds something may take to become ready, or to end."""


class Stack:
    """The processes, and where they are."""

    def __init__(self, folder: Path, places: dict[str, str]) -> None:
        self.folder = folder
        self.places = places
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, *command: str, **environment: str) -> None:
        """Start a program; what it says goes into a log."""
        with (self.folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(  # noqa: S603 - the programs are our own and Debian's
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, **environment},
                start_new_session=True,  # Ctrl-C is for this program, which ends the others in order
            )

    def await_ready(self, name: str, place: str) -> None:
        """Wait until a program answers that it is ready."""
        deadline = monotonic() + PATIENCE
        tick = threading.Event()
        while not _answers(f"http://{self.places[place]}{READY[place]}"):
            if self.processes[name].poll() is not None or monotonic() > deadline:
                sys.exit(f"error: {name} does not become ready:\n{self.last_words(name)}")
            tick.wait(0.2)

    def ended(self) -> str | None:
        """A program that has ended by itself, if one has."""
        return next((name for name, process in self.processes.items() if process.poll() is not None), None)

    def last_words(self, name: str) -> str:
        """The end of a program's log."""
        return "\n".join((self.folder / f"{name}.log").read_text("utf-8", "replace").splitlines()[-10:])

    def stop(self) -> None:
        """End all programs, those that send before those that receive."""
        for process in reversed(self.processes.values()):
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - loopback
    except (OSError, urllib.error.URLError):
        return False
    return True


class Told(BaseHTTPRequestHandler):
    """The webhook: prints what people would be told."""

    def do_POST(self) -> None:
        """Print each alert."""
        said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for alert in said["alerts"] if said["receiver"] != "watchdog" else ():
            texts = alert["annotations"]
            _say(f"{said['receiver'].upper()} {alert['status']}: {texts['summary']}", f"    {texts['description']}")

    def log_message(self, *_: object) -> None:
        """Say nothing of requests."""


def _say(*lines: str) -> None:
    sys.stdout.write("\n".join((*lines, "")))
    sys.stdout.flush()


def configure(folder: Path, places: dict[str, str], hook: str) -> None:
    """Write the deployed configurations with the addresses of this machine."""
    shutil.copy(GOLD, folder)
    listens = "\n".join(f'{name} = "{places[name]}"' for name in ("otlp", "grpc", "admin"))
    (folder / "ragmon.toml").write_text(
        f'extend = {json.dumps(str(HERE / "ragmon.toml"))}\n[capture]\ngold = "gold.jsonl"\n[gold.harbour]\n'
        f'path = "gold.jsonl"\n[serve]\n{listens}\ntls = "off"\nstate_dir = "state"\n',
        encoding="utf-8",
    )
    watch = yaml.safe_load((HERE / "prometheus" / "prometheus.yml").read_text("utf-8"))
    watch["global"] = {"scrape_interval": "5s", "evaluation_interval": "5s"}
    watch["rule_files"] = [str(HERE / "prometheus" / "ragmon.rules.yml")]
    watch["scrape_configs"][0]["static_configs"] = [{"targets": [places["admin"]]}]
    watch["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": [places["alertmanager"]]}]}]
    tell = yaml.safe_load((HERE / "alertmanager.yml").read_text("utf-8"))
    for receiver in tell["receivers"]:
        receiver["webhook_configs"] = [{"url": hook, "send_resolved": True}]
    for name, content in (("prometheus.yml", watch), ("alertmanager.yml", tell)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")  # JSON is YAML


def launch(stack: Stack, incident: Sequence[str]) -> None:
    """Start everything, what receives before what sends."""
    folder, places, python = stack.folder, stack.places, sys.executable
    config = str(folder / "ragmon.toml")
    stack.start(
        "alertmanager",
        _program("prometheus-alertmanager"),
        f"--config.file={folder / 'alertmanager.yml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={places['alertmanager']}",
        "--cluster.listen-address=",
    )
    stack.start("ragmon", python, "-m", "ragmon", "serve", "--config", config)
    stack.await_ready("ragmon", "admin")
    stack.await_ready("alertmanager", "alertmanager")
    stack.start(
        "prometheus",
        _program("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={places['prometheus']}",
        "--rules.alert.resend-delay=10s",  # what fires before Alertmanager was found is told again soon
    )
    told = {"RAGMON_CONFIG": config, "RAGMON_ENDPOINT": f"http://{places['otlp']}", "RAGMON_SAMPLE": "1.0"}
    stack.start("application", python, str(HERE / "demo.py"), *incident, **told)
    stack.await_ready("prometheus", "prometheus")


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        sys.exit(f"error: {name} is not installed\nhint: make servers")
    return found


def _places(*, free: bool) -> dict[str, str]:
    """Where everything listens: the usual ports, or any that are free."""
    if not free:
        return {name: f"127.0.0.1:{port}" for name, port in PORTS.items()}
    with ExitStack() as held:
        sockets = {name: held.enter_context(socket.create_server(("127.0.0.1", 0))) for name in PORTS}
        return {name: f"127.0.0.1:{one.getsockname()[1]}" for name, one in sockets.items()}


def main() -> None:
    """Run until Ctrl-C, or until one of them ends."""
    parser = argparse.ArgumentParser(description="The demo, ragmon, Prometheus and Alertmanager on loopback.")
    parser.add_argument("--incident", choices=sorted(INCIDENTS), help="break the pipeline with this fault")
    parser.add_argument("--after", type=float, default=60.0, help="seconds until it breaks (default: 60)")
    parser.add_argument("--free-ports", action="store_true", help="take free ports instead of the usual ones")
    asked = parser.parse_args()
    incident = ["--incident", asked.incident, "--after", str(asked.after)] if asked.incident else []
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ragmon-stack-")))
        webhook = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Told))
        threading.Thread(target=webhook.serve_forever, daemon=True).start()
        stack.callback(webhook.shutdown)
        running = Stack(folder, _places(free=asked.free_ports))
        configure(folder, running.places, f"http://127.0.0.1:{webhook.server_port}/")
        stack.callback(running.stop)
        launch(running, incident)
        _say(
            f"ragmon        http://{running.places['admin']}          status page, /metrics",
            f"prometheus    http://{running.places['prometheus']}/classic/alerts",
            f"alertmanager  http://{running.places['alertmanager']}",
            f"logs          {folder}",
            "What Alertmanager tells people is printed below. Ctrl-C ends everything.",
        )
        while not stop.wait(1.0):
            if name := running.ended():
                sys.exit(f"error: {name} ended:\n{running.last_words(name)}")


if __name__ == "__main__":
    main()
