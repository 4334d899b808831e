"""Workers and a head on a broker: whoever is killed, counts and alarms are those of one pass over the records."""

from __future__ import annotations

import json
import random
import signal
import time

import pytest

from ragmon.alarms.pipelines import as_alert_line
from ragmon.config.load import load
from ragmon.core.record import Totals
from tests.support.brokers import broker
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export, of_totals
from tests.support.partitions import counted_at_once
from tests.support.serving import asked, foreign, free_port, get, replayed, values, whole
from tests.support.waiting import wait_for
from tests.support.workers import PARTITIONS, cluster, configured, heading, recent, scored, watermark, working


def replayed_edges(folder):
    """The edges that a replay of a head's journal gives."""
    out = folder / "edges.jsonl"
    done = ragmon("replay", "--journal", folder / "state", "--config", folder / "ragmon.toml", "--alerts-out", out)
    assert done.code == 0, done.err
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.slow
def test_three_workers_and_a_head_that_are_killed(tmp_path):
    """A worker is killed with -9, another one joins, the head is killed: not one record is lost or counted twice."""
    records, sent = recent(40)
    with cluster(tmp_path) as (mesh, stack):
        mesh.send("otlp_spans", sent)  # before a quiet partition is told that it is later
        workers = [stack.enter_context(working(tmp_path / name)) for name in ("a", "b")]
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) > len(records) // 8)
        workers[0].kill()
        stack.enter_context(working(tmp_path / "c"))
        head.kill()
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == len(records))
        wait_for(lambda: watermark(head) > records[-1].ts + 60)
        books = head.books()
        assert (books["duplicate"], books["residual"]) == (len(sent) - len(records), 0)
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    once.advance(float("inf"))
    assert replayed(tmp_path / "head") == once.scorer.state.digest()
    assert replayed_edges(tmp_path / "head") == [as_alert_line(edge) for edge in once.transitions]
    assert len(once.transitions) >= 4


@pytest.mark.slow
def test_twenty_kills_at_random_moments(tmp_path):
    """Workers and the head are killed with -9 again and again, and begin again."""
    records, sent = recent(30, seed=8)
    chance = random.Random(4)
    with cluster(tmp_path) as (mesh, stack):
        running = {name: stack.enter_context(working(tmp_path / name)) for name in ("a", "b", "c")}
        head = heading(stack, tmp_path)
        for turn in range(20):
            mesh.send("otlp_spans", sent[len(sent) * turn // 20 : len(sent) * (turn + 1) // 20])
            time.sleep(chance.random())  # the moment is what is tried
            victim = chance.choice(["a", "b", "c", "head"])
            if victim == "head":
                head.kill()
                head = heading(stack, tmp_path)
            else:
                running[victim].kill()
                running[victim] = stack.enter_context(working(tmp_path / victim))
        wait_for(lambda: scored(head) == len(records))
        books = head.books()
        assert (books["duplicate"], books["residual"]) == (len(sent) - len(records), 0)
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_requests_of_a_collector_totals_and_what_nobody_can_read(tmp_path):
    """OTLP keyed by trace id: whole records, foreign traces in pieces, totals; garbage is counted and passed over."""
    now = time.time()
    topics = ("otlp_spans", "otlp_metrics", "ragmon.chunks")
    with cluster(tmp_path, topics) as (mesh, stack):
        for name in ("a", "head"):
            path = tmp_path / name / "ragmon.toml"
            path.write_text(path.read_text().replace('encoding = "records"\n', ""))
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        own = [asked(number, ts=now - 30) for number in range(100)]
        sent = [(now - 30, record.trace_id, whole([record])) for record in own]
        for number in range(40):
            call, found = foreign(number, at=now - 30)
            sent += [
                (now - 30 + place, call.trace_id, export([span]).SerializeToString())
                for place, span in enumerate((found, call))
            ]
        sent += [(now - 29, "x", b"no request"), (now - 29, "y", b""), (now - 28, "z", b"\xff" * 900_000)]
        mesh.send("otlp_spans", sorted(sent, key=lambda entry: entry[0]))
        totals = [
            Totals(
                ts=now - 20, instance="one", started=now - 60, pipeline="support", source="live", calls=1000, kept=100
            )
        ]
        mesh.send("otlp_metrics", [(now - 20, "one", of_totals(totals, {"service.name": "support"}))])
        books = wait_for(head.books, lambda found: found["scored"] == 140 and not found["pending"])
        assert sum(books["dropped"].values()) == 2
        shown = wait_for(
            lambda: values(get(f"{head.admin}/metrics")[1]),
            lambda found: found.get('rag_requests_total{pipeline="support",source="live",stratum="rest"}'),
        )
        assert shown['rag_requests_total{pipeline="support",source="live",stratum="rest"}'] == 1000


@pytest.mark.slow
def test_an_old_owner_that_writes_after_the_new_one_changes_nothing(tmp_path):
    """It was stopped (SIGSTOP) in the middle, somebody else took over, and then it went on."""
    records, sent = recent(12, seed=9)
    with cluster(tmp_path) as (mesh, stack):
        old = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        mesh.send("otlp_spans", sent[: len(sent) // 2])
        wait_for(lambda: scored(head) > len(records) // 4)
        old.process.send_signal(signal.SIGSTOP)
        stack.enter_context(working(tmp_path / "b"))
        mesh.send("otlp_spans", sent[len(sent) // 2 :])
        wait_for(lambda: scored(head) == len(records))
        old.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "counts" in old.said() or old.process.poll() is not None)
        wait_for(lambda: watermark(head) > time.time() - 25)
        assert scored(head) == len(records)
        assert head.books()["residual"] == 0
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_a_broker_that_is_away_for_a_while_loses_nothing(tmp_path):
    """It is stopped (SIGSTOP), as a broker is that elects a leader; what waits is counted when it is back."""
    records, sent = recent(10, seed=10)
    with cluster(tmp_path) as (mesh, stack):
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        mesh.send("otlp_spans", sent)
        wait_for(lambda: scored(head) > 0)
        mesh.process.send_signal(signal.SIGSTOP)
        time.sleep(15)  # longer than any session
        mesh.process.send_signal(signal.SIGCONT)
        wait_for(lambda: scored(head) == len(records))
        assert head.books()["duplicate"] == len(sent) - len(records)


@pytest.mark.slow
def test_without_a_worker_the_silent_partition_is_named(tmp_path):
    with cluster(tmp_path) as (mesh, stack):
        worker = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        name = 'ragmon_stream_partition_behind_seconds{partition="otlp_spans/0"}'
        read = lambda: values(get(f"{head.admin}/metrics")[1])  # noqa: E731 - asked again and again
        wait_for(read, lambda found: found.get(name, 1e9) < 60)
        worker.kill()
        wait_for(read, lambda found: found[name] > 20)
        assert len([key for key in read() if key.startswith("ragmon_stream_partition_behind")]) == PARTITIONS
        assert mesh


@pytest.mark.slow
def test_a_missing_topic_and_a_missing_broker_are_named(tmp_path):
    with broker(tmp_path) as mesh:
        mesh.create(1, "otlp_spans")
        done = ragmon("work", "--config", configured(tmp_path / "a", mesh.address))
        assert done.code == 3
        assert "unknown topic: 'ragmon.chunks'" in done.err
    nowhere = configured(tmp_path / "b", f"127.0.0.1:{free_port()}")
    done = ragmon("work", "--config", nowhere)
    assert done.code == 75
    assert "no broker answers at 127.0.0.1" in done.err


@pytest.mark.slow
def test_a_worker_tells_how_it_does(tmp_path):
    with cluster(tmp_path) as (mesh, stack):
        worker = stack.enter_context(working(tmp_path / "a"))
        shown = wait_for(worker.shown, lambda found: found["ragmon_worker_chunks_total"] > 5)
        assert shown["ragmon_worker_ticks_total"] > 0
        assert shown['ragmon_worker_partition{partition="otlp_spans/3"}'] == 1
        assert get(f"{worker.admin()}/healthz") == get(f"{worker.admin()}/readyz") == (200, "ok\n")
        assert worker.stop() == 0
        assert mesh
