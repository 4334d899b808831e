"""What people and machines do to a stream: huge, empty and broken messages, other configurations, silent partitions."""

from __future__ import annotations

import random
import time

import pytest

from ragmon.config.load import load
from ragmon.core.constants import OVERSIZE
from ragmon.core.record import encode
from ragmon.ingest.files import MAX_LINE, ReadSummary, read_files
from tests.support.brokers import broker
from tests.support.partitions import counted_at_once
from tests.support.serving import asked, get, process, replayed, values, whole
from tests.support.waiting import wait_for
from tests.support.workers import PARTITIONS, cluster, configured, heading, recent, scored, watermark, working

BIG = 10 << 20
"""Bytes of a message that nobody expects."""


def large(number, size, **fields):
    """A record with an answer of some bytes."""
    return asked(number, claim="x" * size, **fields)


def shown(head):
    """A head's `/metrics`."""
    return values(get(f"{head.admin}/metrics")[1])


def replay_of(folder, lines):
    """What reading a file of lines gives: the records, and why the other lines are none."""
    path = folder / "lines.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    summary = ReadSummary()
    return list(read_files([str(path)], summary)), dict(summary.rejected)


@pytest.mark.slow
def test_lines_that_are_huge_empty_or_broken_are_accounted_for_as_in_a_file(tmp_path):
    """A message of several lines of which one is bad loses that one alone; a line of 10 MB is longer than allowed."""
    good = [asked(number, ts=time.time() - 10 + number / 1000) for number in range(60)]
    long = large(60, MAX_LINE // 2, ts=time.time() - 9)
    lines = [encode(record) for record in (*good, long)]
    bad = [b"{", b'{"v": 2, "retrieved_ids": []}', b"\xff\xfe", b"[" * 5000, encode(large(61, BIG)), b"\x00" * BIG]
    messages = [
        lines[0],
        b"\n".join([lines[1], bad[0], lines[2], b"", bad[1], lines[3] + b"\r", b"  "]),
        b"\n".join(lines[4:20]) + b"\n",
        b"",
        *bad[2:],
        b"\n".join([bad[4], lines[20], bad[5], lines[21]]),
        *lines[22:],
    ]
    expected, rejected = replay_of(tmp_path, [*lines, *bad, *bad[4:]])
    assert rejected[OVERSIZE] == 4
    with cluster(tmp_path) as (mesh, stack):
        mesh.send("otlp_spans", [(time.time() - 8, f"{number}", message) for number, message in enumerate(messages)])
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == len(lines))
        books = wait_for(head.books, lambda found: sum(found["dropped"].values()) == len(bad) + 2)
        assert books["dropped"] == rejected
        assert (books["duplicate"], books["residual"], books["pending"]) == (0, 0, 0)
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), expected)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_requests_that_are_huge_empty_or_broken_are_accounted_for(tmp_path):
    """An OTLP request of 10 MB is counted, one of garbage is dropped, and the messages after them are counted."""
    now = time.time() - 30
    records = [asked(number, ts=now + number / 1000) for number in range(50)]
    records += [large(number, 200_000, ts=now) for number in range(50, 100)]
    with cluster(tmp_path) as (mesh, stack):
        for name in ("a", "head"):
            path = tmp_path / name / "ragmon.toml"
            path.write_text(path.read_text().replace('encoding = "records"\n', ""))
        sent = [(now, record.trace_id, whole([record])) for record in records[:50]]
        sent.append((now, "x", whole(records[50:])))  # a trace is whole in it, so its place does not matter
        assert len(sent[-1][2]) > BIG - (1 << 20)
        garbage = random.Random(1).randbytes(BIG)
        sent += [(now, "y", garbage), (now, "z", b""), (now, "z", b"\xff" * 100), (now, "x", b"\x00" * BIG)]
        mesh.send("otlp_spans", sent)
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) == len(records))
        books = wait_for(head.books, lambda found: sum(found["dropped"].values()) == 3)
        assert (books["duplicate"], books["residual"], books["pending"]) == (0, 0, 0)
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_chunks_that_are_larger_than_a_message_come_in_pieces_whoever_is_killed(tmp_path):
    """`message.max.bytes` of the client says how large a message may be; a chunk of these records is larger."""
    records, sent = recent(12, seed=5)
    with cluster(tmp_path) as (mesh, stack):
        for name in ("a", "b"):
            path = tmp_path / name / "ragmon.toml"
            path.write_text(path.read_text() + '"message.max.bytes" = 1000\n')
        mesh.send("otlp_spans", sent)
        worker = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) > len(records) // 8)
        head.kill()
        head = heading(stack, tmp_path)
        wait_for(lambda: scored(head) > len(records) // 4)
        written = worker.shown()
        assert written["ragmon_worker_chunk_bytes_total"] > 1000 * written["ragmon_worker_chunks_total"] > 0
        worker.kill()
        worker = stack.enter_context(working(tmp_path / "b"))
        wait_for(lambda: scored(head) == len(records))
        assert (head.books()["duplicate"], head.books()["residual"]) == (len(sent) - len(records), 0)
        assert head.stop() == 0
    once = counted_at_once(load(tmp_path / "head" / "ragmon.toml", environ={}), records)
    assert replayed(tmp_path / "head") == once.scorer.state.digest()


@pytest.mark.slow
def test_a_worker_with_other_gold_among_three_is_told_and_counting_goes_on(tmp_path):
    """`RagmonStreamConfigsDiffer` is `ragmon_stream_configs > 1`; the head's own configuration has no part in it."""
    records, sent = recent(6, seed=6)
    with cluster(tmp_path) as (mesh, stack):
        gold = tmp_path / "c" / "gold.jsonl"
        gold.write_text(gold.read_text() + '{"qid": "new", "question": "What is new?", "answerable": false}\n')
        for name in ("a", "b", "c"):
            stack.enter_context(working(tmp_path / name))
        head = heading(stack, tmp_path)
        wait_for(lambda: shown(head)["ragmon_stream_configs"] == 2)
        mesh.send("otlp_spans", sent)
        wait_for(lambda: scored(head) == len(records))
        assert (head.books()["duplicate"], head.books()["residual"]) == (len(sent) - len(records), 0)
        assert shown(head)["ragmon_stream_configs"] == 2


@pytest.mark.slow
def test_with_patience_the_time_of_alarms_goes_on_without_a_worker(tmp_path):
    with broker(tmp_path) as mesh:
        mesh.create(PARTITIONS, "otlp_spans", "ragmon.chunks")
        for name, more in (("a", ""), ("head", 'from = "stream"\n')):
            path = configured(tmp_path / name, mesh.address, more)
            path.write_text(path.read_text().replace("[stream]\n", '[stream]\npatience = "20s"\n'))
        with working(tmp_path / "a") as worker, process(tmp_path / "head") as head:
            wait_for(lambda: watermark(head) > time.time() - 30)
            worker.kill()
            name = 'ragmon_stream_partition_behind_seconds{partition="otlp_spans/0"}'
            wait_for(lambda: shown(head)[name] > 60)  # what RagmonPartitionBehind waits for
            assert watermark(head) > time.time() - 30
