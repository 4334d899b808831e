"""A server that adds up what workers count: single requests are looked at, rated and erased on the sample it gets."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from ragmon.config.load import load
from ragmon.core.record import SAMPLES, ChunkEntry, Label, Tombstone, encode
from ragmon.server.erasure import erase
from ragmon.server.server import Server
from ragmon.stream.chunk import Chunk
from ragmon.stream.worker import CountingLimits
from ragmon.testing import make_record
from tests.support.alarming import NOON, SEVERAL, write_config
from tests.support.command_line import ragmon
from tests.support.partitions import Worker, last_chunk
from tests.support.serving import PORTS, Running, Time, digest, free_port, journalled, replayed

pytest.importorskip("confluent_kafka")
START = 60.0 * NOON
SECRET = "the-lady-with-the-dog"


def trace_of(number):
    """A trace id."""
    return f"{number + 1:032x}"


def failing(number, **fields):
    """A request whose answer cites what was not retrieved, with a question that is nobody else's business."""
    fields = {"ts": START + number, "q": f"{SECRET} {number}", "citations": ["elsewhere"], **fields}
    return make_record(f"q{number}", v=1, source="live", pipeline="support", trace_id=trace_of(number), **fields)


def rated(number, rater="ada"):
    """A label."""
    return Label(trace_id=trace_of(number), rater=rater, correct=False)


class Heading(Running):
    """A head that is handed chunks; there is no broker."""

    offset = 0

    def take(self, chunks):
        """Hand chunks over as they come out of the topic."""
        for data in chunks:
            self.server.writer.chunk(ChunkEntry(data, 0, self.offset)).result()
            self.offset += 1

    @property
    def labels(self):
        """Labels by result."""
        return dict(self.server.writer.server_state.engine.labels.store.results)


@pytest.fixture(autouse=True)
def no_broker(monkeypatch):
    """Nobody waits for a broker that is not there."""
    monkeypatch.setattr("ragmon.stream.kafka.METADATA_TIMEOUT", 0.5)
    monkeypatch.setattr("ragmon.server.chunks.JOIN", 0.5)


@contextmanager
def heading(folder, more=""):
    """A server that adds up chunks."""
    folder.mkdir(exist_ok=True)
    path = write_config(folder, SEVERAL)
    stream = f'from = "stream"\n[stream]\nbrokers = "127.0.0.1:{free_port()}"\n[stream.kafka]\nlog_level = 0\n'
    path.write_text(SEVERAL + more + PORTS + stream, encoding="utf-8")
    with Server(load(path, environ={}), clock=Time(START).clock()) as server:
        yield Heading(server)


def chunks_of(folder, lines, memory=60.0):
    """The chunks of lines, each at the time it has, and of an hour after them."""
    settings = load(folder / "ragmon.toml", environ={})
    log = [(line.ts or START, encode(line).rstrip()) for line in lines]
    log += [(log[-1][0] + after, b"") for after in range(20, 3600, 20)]
    worker = Worker(settings, "otlp_spans/0", log, limits=CountingLimits(memory=memory, samples=8))
    chunks = []
    while not worker.done:
        chunks += worker.step()
    chunks += last_chunk(worker, log[-1][0] + 60)
    for chunk in chunks:
        chunk.partitions = 1
    return [chunk.dump() for chunk in chunks]


def on_disk(folder, text):
    """The files of a journal in which a text is."""
    return [path.name for path in (folder / "state").iterdir() if text.encode() in path.read_bytes()]


@pytest.fixture
def head(tmp_path):
    with heading(tmp_path / "head") as running:
        running.folder = tmp_path / "head"
        yield running


def samples(folder):
    """The records in a head's journal."""
    return [record for record in journalled(folder) if record.kind in SAMPLES]


def listed(head):
    """The traces that `/api/records` lists."""
    found = json.loads(head.get("/api/records?pipeline=support&metric=citation_scope&limit=1000")[1])
    return [record["trace_id"] for record in found["records"]]


def test_failing_requests_are_listed_explained_and_shown_from_the_sample(head):
    head.take(chunks_of(head.folder, [failing(number) for number in range(100)]))
    books = head.books()
    assert (books["scored"], books["residual"]) == (100, 0)
    found = listed(head)
    assert 60 <= len(found) <= 100
    why = json.loads(head.get("/api/why?pipeline=support&gate=citation_scope")[1])
    assert len(why["traces"]) == 8
    assert found[0] in head.get("/p/support/citation_scope")[1]
    place = ("--state-dir", head.folder / "state", "--config", head.folder / "ragmon.toml")
    assert SECRET in ragmon("show", found[0], *place).out
    queue = ragmon("label", "queue", *place)
    assert found[0] in queue.out, queue.err


def test_what_is_sampled_is_not_counted_again_here_or_in_a_replay(head):
    chunks = chunks_of(head.folder, [failing(number) for number in range(100)])
    head.take(chunks)
    assert len(samples(head.folder)) >= 60
    assert replayed(head.folder) == digest(head)
    assert head.books()["scored"] == 100


def test_a_chunk_that_comes_again_brings_nothing_again(head):
    chunks = chunks_of(head.folder, [failing(number) for number in range(40)])
    head.take([*chunks, *chunks])
    found = [record.trace_id for record in samples(head.folder)]
    assert len(found) == len(set(found)) > 0
    assert replayed(head.folder) == digest(head)


@pytest.mark.slow
def test_a_label_that_came_too_late_for_a_worker_joins_the_sample_and_others_are_orphans(head):
    settled = chunks_of(head.folder, [failing(number) for number in range(100)])
    head.take(settled)
    kept = {record.trace_id for record in samples(head.folder)}
    missing = next(number for number in range(100) if trace_of(number) not in kept)
    known = next(number for number in range(100) if trace_of(number) in kept)
    late = [replace(rated(number), ts=START + 7200) for number in (known, missing)]
    chunks = []
    for data in chunks_of(head.folder, late):
        chunk = Chunk.load(data)
        chunk.part = "otlp_spans/1"
        chunks.append(chunk.dump())
    head.take(chunks)
    assert head.labels == {"joined": 1, "orphan": 1}
    assert head.metrics()['ragmon_labels_total{result="orphan"}'] == 1
    assert replayed(head.folder) == digest(head)


def test_requests_that_are_there_for_their_failure_are_no_random_sample(head):
    """The queue of labels offers those that were drawn first, and releases are compared on them alone."""
    builds = [failing(number, build=f"b{number % 2}", citations=["d1"]) for number in range(200)]
    bad = [failing(number, build="b1", ts=START + number - 200) for number in range(200, 260)]
    head.take(chunks_of(head.folder, sorted([*builds, *bad], key=lambda record: record.ts)))
    found = samples(head.folder)
    assert len([record for record in found if record.kind == "failing"]) > 10
    drawn = {record.trace_id for record in found if record.kind == "sampled"}
    queue = ragmon("label", "queue", "--state-dir", head.folder / "state", "--format", "jsonl", "--limit", "1000")
    rows = [json.loads(line) for line in queue.out.splitlines()]
    assert {row["trace_id"] for row in rows if row["sample"] == "audit"} == drawn
    compared = json.loads(head.get("/api/compare?pipeline=support&baseline=b0&candidate=b1")[1])
    scope = next(gate for gate in compared["gates"] if gate["gate"] == "citation_scope")
    assert scope["baseline"]["n"] + scope["candidate"]["n"] == len(drawn)


PROBE = """
[pipeline]
name = "support"
[probe.support]
gold = "gold"
target = "http://127.0.0.1:9/"
every = "1h"
"""


def test_a_head_that_probes_says_that_its_probes_are_not_joined(tmp_path):
    with heading(tmp_path, PROBE) as head:
        assert "counts twice" in " ".join(head.server.warnings)


# --- erasure ----------------------------------------------------------------------------------------------------------


def test_forgetting_takes_a_sampled_request_and_its_labels_off_the_disk_and_counts_stay(head):
    lines = [failing(number, q=f"{SECRET} of number {number}.") for number in range(5)]
    head.take(chunks_of(head.folder, [*lines, replace(rated(1), ts=START + 8)]))
    assert head.labels == {"joined": 1}
    before = digest(head)
    done = ragmon("forget", "--trace", trace_of(1), "--state-dir", head.folder / "state")
    assert "forgotten: 1 record, 1 label" in done.out, done.err
    assert on_disk(head.folder, f"{SECRET} of number 1.") == []
    assert on_disk(head.folder, f"{SECRET} of number 2.")
    assert trace_of(1) not in listed(head)
    assert {entry.was for entry in journalled(head.folder, Tombstone)} <= {"sampled", "failing", "label"}
    books = head.books()
    assert (books["scored"], books["residual"]) == (5, 0)
    assert digest(head) == before == digest(head)


def test_a_user_is_forgotten_with_the_labels_on_answers_that_are_in_no_sample(head):
    """The answer of a label has no text, and still says whose it is."""
    lines = [failing(number, user="ada" if number == 90 else "bob", ts=START + 1) for number in range(100)]
    head.take(chunks_of(head.folder, [*lines, replace(rated(90, "eve"), ts=START + 8)]))
    assert trace_of(90) not in {record.trace_id for record in samples(head.folder)}
    assert on_disk(head.folder, '"user":"ada"')
    done = ragmon("forget", "--user", "ada", "--state-dir", head.folder / "state")
    assert "1 label" in done.out, done.err
    assert on_disk(head.folder, '"user":"ada"') == []


def test_chunks_are_stored_without_text(head):
    head.take(chunks_of(head.folder, [failing(1), replace(rated(1), ts=START + 8)]))
    for entry in journalled(head.folder, ChunkEntry):
        chunk = Chunk.load(entry.body)
        assert chunk.lines == b""
        assert SECRET not in repr(chunk)


def test_a_trace_that_was_forgotten_is_not_taken_from_later_chunks_not_even_after_a_restart(tmp_path):
    with heading(tmp_path) as head:
        assert head.labels == {}
    erase(tmp_path / "state", trace=trace_of(1))
    with heading(tmp_path) as head:
        head.take(chunks_of(tmp_path, [failing(1), failing(2), replace(rated(1), ts=START + 8)]))
        assert [record.trace_id for record in samples(tmp_path)] == [trace_of(2)]
        assert head.labels == {}
        assert head.books()["scored"] == 2
