"""Workers and a head on a broker: whoever is killed, counts and alarms are those of one pass over the records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from time import time

import msgspec
import pytest

from ragmon.config.load import load
from ragmon.core.record import encode
from tests.support.alarming import SEVERAL, mixed, shown, write_config
from tests.support.brokers import broker
from tests.support.partitions import counted_at_once
from tests.support.serving import PORTS, Process, get, replayed, values
from tests.support.waiting import TIMEOUT, wait_for

STREAM = """
[stream]
brokers = "{address}"
encoding = "records"
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
    """Records whose last one comes now, with traces of their own; 2 % of them again within three minutes."""
    records = list(mixed(seed, minutes))
    shift = (time() - records[-1].ts) // 60 * 60
    records = [
        msgspec.structs.replace(record, ts=record.ts + shift, v=1, trace_id=f"{number + 1:032x}")
        for number, record in enumerate(records)
    ]
    sent = [(record.ts, record.trace_id, encode(record)) for record in records]
    sent += [(at + 60 + place % 120, key, line) for place, (at, key, line) in enumerate(sent[: len(sent) * 9 // 10 : 50])]
    return records, sorted(sent, key=lambda entry: entry[0])


def head_of(folder, address):
    """The configuration of a head, found at the same place when it begins again."""
    return configured(folder, address, 'from = "stream"\n')


def scored(head):
    """How many records a head has added."""
    return head.books()["scored"]


def test_three_workers_and_a_head_that_are_killed(tmp_path):
    """A worker is killed with -9, another one joins, the head is killed: not one record is lost or counted twice."""
    records, sent = recent(40)
    with ExitStack() as stack:
        mesh = stack.enter_context(broker(tmp_path))
        mesh.create(PARTITIONS, "otlp_spans", "ragmon.chunks")
        for name in ("a", "b", "c"):
            configured(tmp_path / name, mesh.address)
        workers = [stack.enter_context(working(tmp_path / name)) for name in ("a", "b")]
        head_of(tmp_path / "head", mesh.address)
        head = Process(tmp_path / "head")
        stack.callback(lambda: head._process.poll() is None and head.kill())
        mesh.send("otlp_spans", sent[: len(sent) // 2])
        wait_for(lambda: scored(head) > len(records) // 8)
        workers[0].kill()
        stack.enter_context(working(tmp_path / "c"))
        mesh.send("otlp_spans", sent[len(sent) // 2 :])
        head.kill()
        head = Process(tmp_path / "head")
        stack.callback(lambda: head._process.poll() is None and head.kill())
        wait_for(lambda: scored(head) == len(records))
        books = head.books()
        assert books["duplicate"] == len(sent) - len(records)
        end = records[-1].ts
        wait_for(lambda: values(get(f"{head.admin}/metrics")[1])["ragmon_stream_watermark_timestamp_seconds"] > end + 60)
        wait_for(lambda: (head.status(), True)[1])
        edges_of_head = head.status()["transitions"] if "transitions" in head.status() else None
        assert head.stop() == 0
    settings = load(tmp_path / "head" / "ragmon.toml", environ={})
    once = counted_at_once(settings, records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()
    assert edges_of_head is None or edges_of_head == shown(once.transitions)
    assert json
