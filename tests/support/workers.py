"""Workers and a head on a broker, as processes of their own: what tests of the stream on Kafka share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import msgspec

from ragmon.core.record import encode
from tests.support.alarming import SEVERAL, mixed, write_config
from tests.support.brokers import broker
from tests.support.serving import PORTS, get, process, values
from tests.support.waiting import TIMEOUT, wait_for

STREAM = """
[stream]
brokers = "{address}"
encoding = "records"
memory = "90m"
[stream.kafka]
"session.timeout.ms" = 6000
"heartbeat.interval.ms" = 1000
"max.poll.interval.ms" = 15000
"log_level" = 3
"""
PARTITIONS = 6


def configured(folder, address, more="", ports=PORTS):
    """A configuration of a worker or the head; returns its path."""
    folder.mkdir(exist_ok=True)
    path = write_config(folder, SEVERAL)
    path.write_text(SEVERAL + ports + more + STREAM.format(address=address), encoding="utf-8")
    return path


class WorkerProcess:
    """`ragmon work` as a process of its own."""

    def __init__(self, folder):
        self.log = (folder / "worker.log").open("a+")
        command = [sys.executable, "-m", "ragmon", "work", "--config", folder / "ragmon.toml"]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=folder, env=dict(os.environ))
        self.folder = folder

    def admin(self):
        """The address of its admin port."""
        lines = wait_for(lambda: [line for line in self.said().splitlines() if line.startswith("admin: ")])
        return f"http://{lines[-1].removeprefix('admin: ')}"

    def shown(self):
        """Its `/metrics`, by name and labels."""
        return values(get(f"{self.admin()}/metrics")[1])

    def said(self):
        """What it wrote."""
        return (self.folder / "worker.log").read_text()

    def kill(self):
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(timeout=TIMEOUT)

    def stop(self):
        """Ask it to end; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=TIMEOUT)


@contextmanager
def working(folder):
    """A worker, ended at the end."""
    worker = WorkerProcess(folder)
    try:
        yield worker
    finally:
        if worker.process.poll() is None:
            worker.kill()
        worker.log.close()


def recent(minutes, seed=3):
    """Records up to five minutes ago, each with a trace of its own; 2 % of them come again within three minutes."""
    records = list(mixed(seed, minutes))
    shift = (time.time() - records[-1].ts - 300) // 60 * 60
    records = [
        msgspec.structs.replace(record, ts=record.ts + shift, v=1, trace_id=f"{number + 1:032x}")
        for number, record in enumerate(records)
    ]
    sent = [(record.ts, record.trace_id, encode(record)) for record in records]
    sent += [
        (at + 60 + place % 120, key, line) for place, (at, key, line) in enumerate(sent[: len(sent) * 9 // 10 : 50])
    ]
    return records, sorted(sent, key=lambda entry: entry[0])


def scored(head):
    """How many records a head has added."""
    return head.books()["scored"]


def watermark(head):
    """Until when a head judges alarms."""
    return values(get(f"{head.admin}/metrics")[1])["ragmon_stream_watermark_timestamp_seconds"]


@contextmanager
def cluster(folder, topics=("otlp_spans", "ragmon.chunks"), more=""):
    """A broker with topics, configurations of three workers and of a head; gives the broker and a stack to begin on."""
    with ExitStack() as stack:
        mesh = stack.enter_context(broker(folder))
        mesh.create(PARTITIONS, *topics)
        for name in ("a", "b", "c"):
            configured(folder / name, mesh.address, more=more)
        configured(folder / "head", mesh.address, 'from = "stream"\n' + more)
        yield mesh, stack


def heading(stack, folder):
    """A head, ended at the end."""
    return stack.enter_context(process(folder / "head"))
