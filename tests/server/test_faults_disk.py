"""Disks that are full, files that are torn, bytes that flip: the server says so, goes on by itself, counts exactly."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
from contextlib import suppress

import pytest

from ragmon.config.load import load
from ragmon.server import store
from ragmon.server.state import replay
from ragmon.server.store import JournalError, JournalReader
from ragmon.stream.assembler import AssemblyLimits
from tests.support.otlp_requests import export
from tests.support.serving import (
    PROTOBUF,
    accounted,
    asked,
    between_rows,
    configuration,
    digest,
    foreign,
    journalled,
    post,
    process,
    replayed,
    send_body,
    serving,
    whole,
)
from tests.support.small_disk import fill
from tests.support.waiting import wait_for

STRICT = "[pipelines.support.gates.empty_retrieval_rate]\nat_most = 0.0\n"
"""A gate some requests fail, so that failures are indexed."""


def some(first, n=25):
    """Requests of users; each tenth retrieved nothing."""
    return [asked(k, **({"retrieved": []} if k % 10 == 0 else {})) for k in range(first, first + n)]


# --- a full disk ------------------------------------------------------------------------------------------------------


def send_until_refused(running, folder):
    """Requests until one is not taken; returns how many were, the one that was not, and what was said to it."""
    for n in range(10_000):
        body = whole(some(25 * n))
        code, text = post(f"{running.otlp}/v1/traces", body, PROTOBUF)
        if code != 200:
            return 25 * n, body, (code, text)
        if n == 5:
            fill(folder / "ballast")
    raise AssertionError("the disk is never full")


@pytest.mark.slow
def test_on_a_full_disk_senders_are_asked_to_wait_and_it_goes_on_when_there_is_room(disk):
    """Nothing is acknowledged and lost; the numbers are served all the while; nobody need send anything first."""
    with serving(disk, STRICT) as running:
        send_body(running, export(foreign(1)).SerializeToString())
        taken, body, (code, text) = send_until_refused(running, disk)
        fill(disk / "ballast")
        assert (code, "disk_full" in text) == (503, True)
        assert post(f"{running.otlp}/v1/traces", whole(some(10**6)), PROTOBUF)[0] == 503
        shown = running.metrics()
        assert (shown["ragmon_journal_writable"], running.get("/readyz")[0], running.get("/healthz")[0]) == (
            0,
            503,
            200,
        )
        assert shown['ragmon_requests_refused_total{reason="disk_full"}'] >= 2
        (disk / "ballast").unlink()
        wait_for(lambda: running.get("/readyz")[0], lambda found: found == 200)
        assert running.metrics()["ragmon_journal_writable"] == 1
        for _ in range(2):
            send_body(running, body)
        books = accounted(running)
        assert (books["scored"], books["duplicate"]) == (taken + 25 + 1, 25)
        found = digest(running)
    assert replayed(disk) == found


@pytest.mark.slow
def test_a_server_that_stops_on_a_full_disk_loses_nothing(disk):
    """It cannot write a checkpoint then; everything is in the rows."""
    configuration(disk, STRICT)
    with process(disk) as running:
        send_body(running, whole(some(0)))
        fill(disk / "ballast")
        assert running.stop() == 0
    with process(disk) as refused:
        if "ready" not in refused.lines:
            assert refused.wait() == 3
            assert any("no room left for the journal" in line for line in refused.lines), refused.lines
    (disk / "ballast").unlink()
    with serving(disk, STRICT) as running:
        assert accounted(running)["scored"] == 25


# --- torn and flipped -------------------------------------------------------------------------------------------------


BODIES = [whole(some(25 * n)) for n in range(8)]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """What a server leaves behind that is killed: rows, keys, failures, checkpoints, traces that wait."""
    folder, left = tmp_path_factory.mktemp("serving"), tmp_path_factory.mktemp("left")
    with serving(folder, STRICT, assembly_limits=AssemblyLimits(idle=0.1, rootless=3600.0)) as running:
        writer = running.server.writer
        for n, body in enumerate(BODIES):
            send_body(running, body)
            send_body(running, export(foreign(n) + foreign(100 + n)[1:]).SerializeToString())
            if n == 4:
                between_rows(running, writer._save)
        books = running.wait_for(lambda found: found["pending"] == 8)
        between_rows(running, lambda: shutil.copytree(folder, left, dirs_exist_ok=True))
    assert (books["scored"], books["residual"]) == (208, 0)
    return left


def reopened(folder):
    """A server on what is there: it starts by itself and takes requests. What it counted is what its rows say.

    Returns:
        Its books, and how often it set something aside.
    """
    with serving(folder, STRICT) as running:
        before = accounted(running)
        send_body(running, whole(some(10_000)))
        after = accounted(running)
        assert (after["scored"], running.get("/readyz")[0]) == (before["scored"] + 25, 200)
        assert running.get("/api/records")[0] in (200, 503)
        resets, found = running.status()["journal"]["resets"], digest(running)
    with JournalReader(folder / "state") as journal, suppress(JournalError):
        assert replay(load(folder / "ragmon.toml", environ={}), journal).engine.scorer.state.digest() == found
    return before, resets


def as_it_was(books):
    """Whether nothing was lost: requests of users, traces that were done, and traces that waited and have no root."""
    return books["scored"] + books["ignored"].get("not_rag", 0) == 216


@pytest.mark.slow
def test_what_is_left_by_a_kill_is_as_it_was(tmp_path, crashed):
    shutil.copytree(crashed, tmp_path, dirs_exist_ok=True)
    books, resets = reopened(tmp_path)
    assert (as_it_was(books), resets) == (True, 0)
    with serving(tmp_path, STRICT) as running:
        found = digest(running)
    assert replayed(tmp_path) == found


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_torn_log_costs_its_end_and_what_is_sent_again_counts_once(tmp_path, crashed, seed):
    """A disk that lied about what it had written: the log breaks off, or ends in garbage."""
    rng = random.Random(seed)
    shutil.copytree(crashed, tmp_path, dirs_exist_ok=True)
    log = tmp_path / "state" / "journal.db-wal"
    place = rng.randrange(log.stat().st_size)
    os.truncate(log, place)
    if seed % 2:
        with log.open("ab") as file:
            file.write(rng.randbytes(rng.randrange(1, 20_000)))
    books, resets = reopened(tmp_path)
    assert (resets, books["scored"] <= 216) == (0, True)
    with serving(tmp_path, STRICT) as running:
        for body in BODIES:
            send_body(running, body)
        accounted(running)
        own = [record.trace_id for record in journalled(tmp_path) if int(record.trace_id, 16) <= 200]
    assert sorted(own) == sorted(f"{n + 1:032x}" for n in range(200))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_whatever_bytes_flip_the_server_starts_and_counts_as_before_or_anew(tmp_path, crashed, seed, monkeypatch):
    """Nobody repairs anything, and no file is thrown away. Half of them are not checked as a whole when opened."""
    rng = random.Random(seed)
    shutil.copytree(crashed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "state" / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(rng.randint(1, 8)):
            file.seek(rng.randrange(size))
            file.write(rng.randbytes(rng.choice([1, 1, 4, 64])))
    monkeypatch.setattr(store, "_CHECKED", (seed % 2) << 24)
    books, resets = reopened(tmp_path)
    aside = [found for found in path.parent.glob("journal.db.corrupt-*") if found.suffix not in ("-wal", "-shm")]
    assert resets == len(aside)
    assert as_it_was(books) or (books["received"], resets) == (0, 1)


WAITS = int(foreign(107)[1].trace_id, 16).to_bytes(16, "big")


@pytest.mark.parametrize(
    ("before", "after"), [(b'"received":25', b'"received":26'), (WAITS, WAITS[:-1] + b"z")], ids=["count", "request"]
)
def test_a_change_that_could_be_read_as_if_it_were_right_is_noticed(tmp_path, crashed, before, after):
    """One byte of a count, or of a trace that waits: no sum would come out right again."""
    shutil.copytree(crashed, tmp_path, dirs_exist_ok=True)
    path = tmp_path / "state" / "journal.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    assert before in path.read_bytes()
    path.write_bytes(path.read_bytes().replace(before, after))
    books, resets = reopened(tmp_path)
    assert (books["received"], resets) == (0, 1)


@pytest.mark.slow
def test_damage_that_shows_while_it_runs_costs_what_was_counted_nothing(tmp_path):
    """The file is set aside, the sender tries again, and a crash right after that finds everything."""
    folder, left = tmp_path / "folder", tmp_path / "left"
    folder.mkdir()
    with serving(folder, STRICT, assembly_limits=AssemblyLimits(idle=0.1, rootless=3600.0)) as running:
        send_body(running, whole(some(0)))
        send_body(running, export(foreign(1)[1:]).SerializeToString())
        path = folder / "state" / "journal.db"
        with sqlite3.connect(path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        connection.close()
        with path.open("r+b") as file:
            file.seek(4096)
            file.write(random.Random(1).randbytes(path.stat().st_size - 4096))
        wait_for(lambda: post(f"{running.otlp}/v1/traces", whole(some(25)), PROTOBUF)[0], lambda code: code == 200)
        books = accounted(running)
        assert (books["scored"] + books["ignored"].get("not_rag", 0), running.status()["journal"]["resets"]) == (51, 1)
        assert running.metrics()["ragmon_state_reset_total"] == 1
        send_body(running, export(foreign(2)[1:]).SerializeToString())
        running.wait_for(lambda found: found["pending"] == 1)
        between_rows(running, lambda: shutil.copytree(folder, left))
        found = digest(running)
    assert len(list(path.parent.glob("journal.db.corrupt-*"))) == 1
    assert replayed(folder) == found
    again, resets = reopened(left)
    assert (again["received"], resets) == (books["received"] + 1, 0)
