"""A server that adds up chunks saves its state by what it would have to read again, not by the records in it."""

from __future__ import annotations

import pytest

from ragmon.config.load import load
from ragmon.core.record import ChunkEntry
from ragmon.server import writer
from ragmon.server.pending import QueuedRequest
from ragmon.server.server import make_writer
from ragmon.server.state import Clock
from tests.support.alarming import SEVERAL, mixed, write_config
from tests.support.partitions import Worker, partitions_of
from tests.support.serving import PORTS

CHUNKS = 12


@pytest.fixture
def head(tmp_path):
    """A journal writer of a server that adds up one partition, and chunks of 25,000 records each."""
    path = write_config(tmp_path, SEVERAL)
    path.write_text(f'{SEVERAL}{PORTS}from = "stream"\n[stream]\nbrokers = "127.0.0.1:1"\n', encoding="utf-8")
    settings = load(path, environ={})
    (log,) = partitions_of(mixed(3, 4), 1)
    worker, chunks = Worker(settings, "0", log), []
    while len(chunks) < CHUNKS:
        chunks += worker.step()
    for chunk in chunks:
        chunk.counts.state.scored = 25_000
    made = make_writer(settings, Clock(), None)
    yield made, [chunk.dump() for chunk in chunks]
    made.journal.close()


def checkpoints(made, bodies):
    """How many checkpoints are written while chunks are added."""
    written = []
    for offset, body in enumerate(bodies):
        made._turn([QueuedRequest(size=len(body), entries=[ChunkEntry(body, 0, offset)])])
        made._keep(ending=False)
        newest = made.journal.checkpoint()
        written.append(None if newest is None else newest.seq)
    assert made.server_state.engine.scorer.scored == 25_000 * len(bodies)
    return len(set(written) - {None})


def test_records_in_chunks_cost_no_checkpoint(head):
    assert checkpoints(*head) == 0


def test_bytes_of_chunks_do(head, monkeypatch):
    made, bodies = head
    monkeypatch.setattr(writer, "CHECKPOINT_CHUNKS", 4 * max(map(len, bodies)))
    assert 1 <= checkpoints(made, bodies) <= CHUNKS // 2
