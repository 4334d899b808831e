"""Labels, samples and erasure with workers and a head on a broker."""

from __future__ import annotations

import json
import time

import pytest

from ragmon.core.record import encode
from tests.stream.test_kafka import cluster, heading, recent, scored, working
from tests.support.command_line import ragmon
from tests.support.otlp_requests import export
from tests.support.serving import asked, foreign, get, post, replayed, values, whole
from tests.support.waiting import wait_for


def labels_of(head):
    """The labels of a head by result, those that are not 0."""
    shown = values(get(f"{head.admin}/metrics")[1])
    prefix = 'ragmon_labels_total{result="'
    return {name[len(prefix) : -2]: n for name, n in shown.items() if name.startswith(prefix) and n}


def rate(head, trace_ids, rater="ada"):
    """Give labels to a head, as an application does."""
    labels = [
        {"trace_id": trace_id, "rater": rater, "correct": place % 3 > 0} for place, trace_id in enumerate(trace_ids)
    ]
    status, text = post(f"{head.otlp}/v1/labels", labels)
    assert (status, json.loads(text)["accepted"]) == (200, len(labels)), text


def memory_of(folder, memory, names=("a", "b", "c", "head"), **replaced):
    """Let workers remember for another time, and change more of the configurations."""
    for name in names:
        path = folder / name / "ragmon.toml"
        text = path.read_text().replace('memory = "90m"', f'memory = "{memory}"')
        for old, new in replaced.values():
            text = text.replace(old, new)
        path.write_text(text)


@pytest.mark.slow
def test_labels_that_come_to_the_head_join_answers_that_workers_count(tmp_path):
    """Before and after a worker is killed; what one says of an answer that nobody knows is an orphan later."""
    records, sent = recent(4)
    with cluster(tmp_path) as (mesh, stack):
        worker = stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        mesh.send("otlp_spans", sent)
        wait_for(lambda: scored(head) == len(records))
        rated = [record.trace_id for record in records if record.source == "live"][:60]
        rate(head, rated[:30])
        wait_for(lambda: labels_of(head), lambda found: sum(found.values()) == 30)
        worker.kill()
        stack.enter_context(working(tmp_path / "b"))
        rate(head, rated[30:])
        rate(head, rated[:30])
        assert wait_for(lambda: labels_of(head), lambda found: sum(found.values()) >= 60)["joined"] == 60
        _, text = post(f"{head.otlp}/v1/labels", [{"trace_id": "x", "rater": "ada", "correct": True}])
        assert json.loads(text)["rejected"] == 1
        assert head.stop() == 0
    assert replayed(tmp_path / "head")


@pytest.mark.slow
def test_in_a_topic_of_requests_labels_join_whole_records_and_foreign_traces(tmp_path):
    now = time.time()
    with cluster(tmp_path, ("otlp_spans", "otlp_metrics", "ragmon.chunks")) as (mesh, stack):
        memory_of(tmp_path, "90m", encoding=('encoding = "records"\n', ""))
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        own = [asked(number, ts=now - 30) for number in range(50)]
        sent = [(now - 30, record.trace_id, whole([record])) for record in own]
        spans = [span for number in range(20) for span in foreign(number, at=now - 30)]
        sent += [(now - 30, span.trace_id, export([span]).SerializeToString()) for span in spans]
        mesh.send("otlp_spans", sent)
        wait_for(lambda: scored(head) == 70)
        rate(head, [*(record.trace_id for record in own), *(foreign(number)[0].trace_id for number in range(20))])
        assert wait_for(lambda: labels_of(head), lambda found: sum(found.values()) == 70) == {"joined": 70}


@pytest.mark.slow
def test_later_labels_join_the_sample_and_forgotten_requests_do_not_come_back(tmp_path):
    """A worker remembers for twenty seconds here."""
    now = time.time()
    records = [asked(number, ts=now - 5, q=f"a question of number {number}.") for number in range(300)]
    with cluster(tmp_path) as (mesh, stack):
        memory_of(tmp_path, "20s")
        stack.enter_context(working(tmp_path / "a"))
        head = heading(stack, tmp_path)
        mesh.send("otlp_spans", [(now - 5, record.trace_id, encode(record)) for record in records])
        wait_for(lambda: scored(head) == len(records))
        folder = tmp_path / "head" / "state"
        queue = ragmon("label", "queue", "--state-dir", folder, "--format", "jsonl")
        kept = [json.loads(line)["trace_id"] for line in queue.out.splitlines()]
        assert 20 <= len(kept) < 100
        missing = next(record.trace_id for record in records if record.trace_id not in kept)
        wait_for(lambda: time.time() > now + 40)
        rate(head, [kept[0], missing])
        assert wait_for(lambda: labels_of(head), lambda found: len(found) == 2) == {"joined": 1, "orphan": 1}
        forgotten = ragmon("forget", "--trace", kept[0], "--state-dir", folder)
        assert "1 record, 1 label" in forgotten.out, forgotten.err
        assert ragmon("show", kept[1], "--state-dir", folder, "--config", tmp_path / "head" / "ragmon.toml").code == 0
        assert ragmon("show", kept[0], "--state-dir", folder, "--config", tmp_path / "head" / "ragmon.toml").code != 0
        assert head.stop() == 0
