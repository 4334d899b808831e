"""Topics that are made anew, cut off or renamed: nothing is counted twice, and nobody waits without a word."""

from __future__ import annotations

import time
from threading import Event, Thread

import pytest

from ragmon.config.load import load
from ragmon.core.record import encode
from ragmon.ingest.gold import load_gold
from ragmon.stream.chunk import Chunk
from ragmon.stream.kafka import ChunkTail
from ragmon.stream.worker import PartitionCounter, StreamWorker
from tests.support.alarming import write_config
from tests.support.brokers import EmulatedBroker, broker
from tests.support.partitions import counted_at_once
from tests.support.serving import asked, get, replayed, values
from tests.support.waiting import wait_for
from tests.support.workers import PARTITIONS, cluster, configured, heading, scored, working


def questions(first, number):
    """Records that are a few seconds old; their numbers begin at one."""
    now = time.time()
    return [asked(n, ts=now - 5 + n / 1e4) for n in range(first, first + number)]


def send(mesh, records):
    """Put records into the topic of requests, a line each."""
    mesh.send("otlp_spans", [(record.ts, record.trace_id, encode(record)) for record in records])


def shown(head):
    """A head's `/metrics`."""
    return values(get(f"{head.admin}/metrics")[1])


def waited_for(head):
    """The partitions that a head waits for."""
    name = "ragmon_stream_partition_behind_seconds"
    return {key.removeprefix(f'{name}{{partition="').removesuffix('"}') for key in shown(head) if key.startswith(name)}


def refused(head):
    """How many chunks a head could not add."""
    name = "ragmon_stream_chunks_total"
    kinds = ("overlapping", "unknown", "damaged", "missing")
    return sum(shown(head).get(f'{name}{{result="{kind}"}}', 0) for kind in kinds)


@pytest.mark.slow
def test_a_topic_that_is_made_anew_is_counted_from_its_beginning(tmp_path):
    """It has fewer messages than were counted of the old one, and fewer partitions.

    The worker is ended before, because librdkafka 2.16 does not survive what this broker answers about a topic that
    was deleted.
    """
    records = questions(0, 500)
    with cluster(tmp_path) as (mesh, stack):
        send(mesh, records[:400])
        worker = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == 400)
        worker.kill()
        mesh.delete("otlp_spans")
        mesh.create(PARTITIONS - 2, "otlp_spans")
        send(mesh, records[400:])
        worker = stack.enter_context(working(tmp_path / "b"))
        wait_for(lambda: scored(head) == 500)
        wait_for(lambda: waited_for(head) == {f"otlp_spans/{n}" for n in range(PARTITIONS - 2)})
        assert head.books()["residual"] == head.books()["duplicate"] == refused(head) == 0
        assert "was deleted and created again: it is counted from its beginning" in worker.said()
        assert worker.shown()["ragmon_worker_made_anew_total"] > 0
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_a_topic_that_is_made_anew_while_it_is_counted_is_noticed(tmp_path):
    """The worker asks for its id before each chunk is written, so no chunk holds messages of two logs."""
    with cluster(tmp_path) as (mesh, stack):
        send(mesh, questions(0, 300))
        settings = load(tmp_path / "a" / "ragmon.toml", environ={})
        worker, stopping = StreamWorker(settings, load_gold(settings.gold)), Event()
        thread = Thread(target=worker.run, args=[stopping])
        thread.start()
        stack.callback(thread.join)
        stack.callback(stopping.set)
        wait_for(lambda: worker.counts["counted"] == 300 + worker.counts["ticks"] > 300)
        worker._ends.log_ids = lambda topics: dict.fromkeys(topics, "another")
        wait_for(lambda: worker.counts["made_anew"] == PARTITIONS)
        parts = [f"otlp_spans/{number}" for number in range(PARTITIONS)]
        last = lambda: ChunkTail(settings.stream, PARTITIONS).last(parts).values()  # noqa: E731 - asked again and again
        chunks = wait_for(last, lambda found: {chunk.log for chunk in found} == {"another"})
        assert {chunk.partitions for chunk in chunks} == {PARTITIONS}


@pytest.mark.slow
def test_a_topic_of_chunks_that_is_made_anew_is_read_from_its_beginning(tmp_path):
    """What a head has added it keeps; workers go on where they are."""
    records = questions(0, 300)
    with cluster(tmp_path) as (mesh, stack):
        send(mesh, records[:200])
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == 200)
        head.stop()
        mesh.delete("ragmon.chunks")
        mesh.create(PARTITIONS, "ragmon.chunks")
        send(mesh, records[200:])
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == 300)
        assert any("ragmon.chunks was deleted and created again" in line for line in head.lines)
        assert head.books()["residual"] == 0


@pytest.mark.slow
def test_a_log_that_ends_before_what_was_counted_is_named_and_goes_on_where_it_was(tmp_path):
    """As after a leader was elected that had not all of it. What comes at offsets that were counted before is lost."""
    mesh = EmulatedBroker()
    folder = tmp_path / "a"
    settings = load(configured(folder, mesh.address), environ={})
    mesh.put("otlp_spans", 0, [b""] * 20)
    counter = PartitionCounter("otlp_spans/0", 0, settings, (), now=time.time() - 60)
    counter.upto = 50
    mesh.put("ragmon.chunks", 0, [counter.seal(time.time() - 60).dump()], b"otlp_spans/0")
    with working(folder) as worker:
        wait_for(lambda: "otlp_spans/0 ends at offset" in worker.said())
        assert "and was counted up to 50: what comes at the offsets between is not counted" in worker.said()
        code, text = get(f"{worker.admin()}/readyz")
        assert (code, "was counted up to 50" in text) == (503, True)
        mesh.put("otlp_spans", 0, [encode(record) for record in questions(0, 60)])
        wait_for(worker.shown, lambda found: found["ragmon_worker_overwritten_total"] > 20)
        read = lambda: [Chunk.load(body) for body in mesh.read("ragmon.chunks", 0)][1:]  # noqa: E731 - asked again
        chunks = wait_for(read, lambda found: sum(chunk.counts.state.scored for chunk in found))
        overwritten = worker.shown()["ragmon_worker_overwritten_total"]
        assert chunks[0].base == 50
        assert sum(chunk.lost for chunk in chunks) == overwritten
        assert sum(chunk.counts.state.scored for chunk in chunks) == 60 - overwritten
        wait_for(lambda: get(f"{worker.admin()}/readyz")[0] == 200)


@pytest.mark.slow
def test_the_last_chunks_of_128_parts_are_read_in_one_pass(tmp_path):
    """A rebalance gives many partitions at once, and the group does not wait long for whoever takes them."""
    path, partitions = write_config(tmp_path), 64
    with broker(tmp_path) as mesh:
        path.write_text(f'[stream]\nbrokers = "{mesh.address}"\n')
        settings = load(path, environ={})
        mesh.create(partitions, "ragmon.chunks")
        parts = [f"{topic}/{number}" for topic in ("otlp_spans", "otlp_metrics") for number in range(partitions)]
        sent, now = [], time.time()
        for turn in range(3):
            for number, part in enumerate(parts):
                counter = PartitionCounter(part, turn * 1000, settings, (), now=now)
                counter.upto = (turn + 1) * 1000 + number
                sent.append((part, counter.seal(now).dump()))
        mesh.put("ragmon.chunks", [(int(part.rpartition("/")[2]), part, body) for part, body in sent])
        tail = ChunkTail(settings.stream, partitions)
        found = tail.last([*parts, "otlp_spans/64"])
        assert {part: chunk.upto for part, chunk in found.items()} == {
            part: 3000 + number for number, part in enumerate(parts)
        }
        assert tail.passes == 1


@pytest.mark.slow
def test_a_chunk_that_lies_further_back_is_found_and_a_damaged_one_is_passed_over(tmp_path):
    path = write_config(tmp_path)
    with broker(tmp_path) as mesh:
        path.write_text(f'[stream]\nbrokers = "{mesh.address}"\n')
        settings = load(path, environ={})
        mesh.create(1, "ragmon.chunks")
        chunk = PartitionCounter("otlp_metrics/0", 7, settings, (), now=1e9).seal(1e9).dump()
        for _ in range(50):  # batches of their own: this broker's end is the base of its last one
            mesh.put("ragmon.chunks", [(0, "otlp_metrics/0", chunk), (0, "otlp_metrics/0", b"damaged")])
            chunk = Chunk.load(chunk).dump()
        for _ in range(40):
            mesh.put("ragmon.chunks", [(0, "otlp_spans/0", b"another part")])
        tail = ChunkTail(settings.stream, 1)
        assert tail.last(["otlp_metrics/0"])["otlp_metrics/0"].base == 7
        assert 1 < tail.passes <= 3
        assert tail.last(["nobody/0"]) == {}


@pytest.mark.slow
def test_a_topic_that_was_renamed_holds_up_nobody(tmp_path):
    """What is left of the old one is counted, and alarms wait for the parts of topics that the head's settings name."""
    records = questions(0, 200)
    topics = ("otlp_spans", "requests", "ragmon.chunks")
    with cluster(tmp_path, topics) as (mesh, stack):
        send(mesh, records[:100])
        worker = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == 100)
        worker.kill()
        head.kill()
        for name in ("b", "head"):
            path = tmp_path / name / "ragmon.toml"
            path.write_text(path.read_text().replace("[stream]\n", '[stream]\nspans = "requests"\n'))
        mesh.send("requests", [(record.ts, record.trace_id, encode(record)) for record in records[100:]])
        stack.enter_context(working(tmp_path / "b"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == 200)
        wait_for(lambda: waited_for(head) == {f"requests/{n}" for n in range(PARTITIONS)})
        ends = records[-1].ts + 20
        wait_for(lambda: shown(head)["ragmon_stream_watermark_timestamp_seconds"] > ends)
