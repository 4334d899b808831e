"""The trace log: put aside as it grows, shared by processes, whole after whatever tore it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress

import pytest

from ragmon.capture import exporters
from ragmon.capture.exporters import JsonlExporter
from ragmon.core.errors import RagmonError, UnavailableError
from ragmon.core.record import Record, Totals
from ragmon.ingest.files import ReadSummary, read_files
from tests.support.waiting import TIMEOUT


@pytest.fixture
def log(tmp_path):
    """Makes logs in a folder, and closes them."""
    made = []

    def make(**told):
        made.append(JsonlExporter(tmp_path / "trace.jsonl", lambda record: record, **told))
        return made[-1]

    yield make
    for one in made:
        one.close()


def lines(folder):
    """All lines of a log and of what was put aside of it, oldest first."""
    aside = sorted(folder.glob("trace-*.jsonl"))
    return [line for path in (*aside, folder / "trace.jsonl") for line in path.read_text().splitlines()]


def test_a_log_past_its_size_is_put_aside_and_none_is_larger(log, tmp_path):
    sink = log(size=200)
    for n in range(50):
        sink.submit(Record(qid=str(n)))
    assert [json.loads(line)["qid"] for line in lines(tmp_path)] == [str(n) for n in range(50)]
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) > 3
    assert max(sizes) <= 200


def test_a_log_of_yesterday_is_put_aside(log, tmp_path, monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(exporters, "time", lambda: now)
    monkeypatch.setattr(exporters, "monotonic", lambda: now)
    sink = log(age=86_400)
    sink.submit(Record(qid="today"))
    assert len(list(tmp_path.iterdir())) == 1
    now += 86_400
    sink.submit(Record(qid="tomorrow"))
    (aside,) = tmp_path.glob("trace-*.jsonl")
    assert "today" in aside.read_text()
    assert "tomorrow" in (tmp_path / "trace.jsonl").read_text()


def test_a_log_another_process_has_put_aside_is_followed(log, tmp_path, monkeypatch):
    """Else its lines would go on into a file nobody reads any more."""
    now = 0.0
    monkeypatch.setattr(exporters, "monotonic", lambda: now)
    sink = log()
    sink.submit(Record(qid="a"))
    (tmp_path / "trace.jsonl").rename(tmp_path / "elsewhere")
    now += 2
    sink.submit(Record(qid="b"))
    assert "b" in (tmp_path / "trace.jsonl").read_text()


def test_a_log_that_ends_in_half_a_line_loses_that_line_alone(log, tmp_path):
    """A disk that was full, a machine that went down."""
    (tmp_path / "trace.jsonl").write_bytes(b'{"qid":"whole"}\n{"qid":"to')
    log().submit(Record(qid="after"))
    intake = ReadSummary()
    records = list(read_files([str(tmp_path / "trace.jsonl")], intake))
    assert [record.qid for record in records] == ["whole", "after"]
    assert sum(intake.rejected.values()) == 1


PROGRAM = """
import sys
from ragmon.capture.exporters import JsonlExporter
from ragmon.core.errors import RagmonError
from ragmon.core.record import Record
sink = JsonlExporter("trace.jsonl", lambda record: record, size=4000)
for n in range(500):
    sink.submit(Record(qid=sys.argv[1], q=str(n)))
"""


def test_processes_share_a_log_and_put_it_aside_without_losing_a_line(tmp_path):
    started = [subprocess.Popen([sys.executable, "-c", PROGRAM, name], cwd=tmp_path) for name in "abcd"]
    assert [process.wait(timeout=TIMEOUT) for process in started] == [0] * 4
    found = [json.loads(line) for line in lines(tmp_path)]
    assert len(found) == 2000
    for name in "abcd":
        assert sorted(int(entry["q"]) for entry in found if entry["qid"] == name) == list(range(500))


def test_it_can_tell_whether_a_record_arrived_whole(log, tmp_path):
    sink = log(size=300)
    ids = [f"{n:032x}" for n in range(4)]
    for trace_id in ids[:3]:
        sink.submit(Record(trace_id=trace_id))
    with (tmp_path / "trace.jsonl").open("a") as file:
        file.write(f'{{"trace_id":"{ids[3]}"')
    assert [sink.holds(trace_id) for trace_id in ids] == [True, True, True, False]


@pytest.mark.parametrize(("fsync", "times"), [("never", 0), ("record", 4)])
def test_the_disk_is_told_when_it_was_asked_for(log, fsync, times, monkeypatch):
    told = []
    monkeypatch.setattr(exporters.os, "fsync", told.append)
    sink = log(fsync=fsync)
    for _ in range(4):
        sink.submit(Record(qid="a"))
    assert len(told) == times


def test_once_a_second_the_disk_is_told_once_a_second(log, monkeypatch):
    now, told = 0.0, []
    monkeypatch.setattr(exporters, "monotonic", lambda: now)
    monkeypatch.setattr(exporters.os, "fsync", told.append)
    sink = log(fsync="second")
    for _ in range(30):
        sink.submit(Record(qid="a"))
        now += 0.1
    assert len(told) == pytest.approx(3, abs=1)


def test_counts_of_all_calls_are_lines_of_their_own(log, tmp_path):
    sink = log()
    sink.report([Totals(ts=1.0, instance="a", started=0.5, pipeline="p", source="live", calls=7, kept=2)])
    (line,) = lines(tmp_path)
    assert json.loads(line) == {
        "kind": "totals",
        "v": 1,
        "ts": 1.0,
        "instance": "a",
        "started": 0.5,
        "pipeline": "p",
        "source": "live",
        "stratum": "rest",
        "calls": 7,
        "kept": 2,
        "dropped": {},
        "latency_ms": {},
    }


# --- who may read it --------------------------------------------------------------------------------------------------


def rights(path):
    return path.stat().st_mode & 0o777


def plain(path, **told):
    return JsonlExporter(path, lambda record: record, **told)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_a_log_and_its_folders_are_the_users_alone_whatever_the_umask(tmp_path, mask):
    path = tmp_path / "runs" / "today" / "trace.jsonl"
    before = os.umask(mask)
    try:
        sink = plain(path, size=100)
        for n in range(5):
            sink.submit(Record(qid=str(n), q="a question of somebody"))
        sink.close()
    finally:
        os.umask(before)
    assert len(list(path.parent.iterdir())) > 1
    assert {rights(part) for part in path.parent.iterdir()} == {0o600}
    assert {rights(path.parent), rights(path.parent.parent)} == {0o700}


@pytest.mark.parametrize(("found", "left"), [(0o644, 0o640), (0o666, 0o660), (0o640, 0o640), (0o600, 0o600)])
def test_a_log_that_is_there_is_closed_to_those_outside_its_group(tmp_path, found, left):
    path = tmp_path / "trace.jsonl"
    path.touch()
    path.chmod(found)
    plain(path).close()
    assert rights(path) == left


def test_a_folder_that_is_there_keeps_its_rights(tmp_path):
    tmp_path.chmod(0o755)
    plain(tmp_path / "trace.jsonl").close()
    assert rights(tmp_path) == 0o755


@pytest.mark.parametrize("target", ["theirs", "missing"])
def test_a_symbolic_link_in_the_place_of_the_log_is_not_followed(tmp_path, target):
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "trace.jsonl").symlink_to(target)
    with pytest.raises(RagmonError, match=r"trace\.jsonl: cannot be written") as caught:
        plain(tmp_path / "trace.jsonl")
    assert "symbolic link" in caught.value.hint
    lenient = plain(tmp_path / "trace.jsonl", strict=False)
    with pytest.raises(UnavailableError, match=r"trace\.jsonl: cannot be written"):
        lenient.submit(Record(qid="a"))
    assert (tmp_path / "theirs").read_text() == "theirs"
    assert not (tmp_path / "missing").exists()


def test_a_link_that_comes_when_the_log_was_rotated_is_not_followed_either(log, tmp_path):
    sink = log(size=40)
    sink.submit(Record(qid="a"))
    (tmp_path / "trace.jsonl").rename(tmp_path / "trace-0.jsonl")
    (tmp_path / "theirs").write_text("theirs")
    (tmp_path / "trace.jsonl").symlink_to(tmp_path / "theirs")
    for n in range(3):
        with suppress(OSError, UnavailableError):
            sink.submit(Record(qid=str(n)))
    assert (tmp_path / "theirs").read_text() == "theirs"


def test_a_folder_behind_a_link_is_as_good_as_another(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to("disk")
    plain(tmp_path / "runs" / "trace.jsonl").close()
    assert (tmp_path / "disk" / "trace.jsonl").exists()


@pytest.mark.parametrize("path", ["/dev/stdout", "/proc/self/fd/1"])
def test_the_systems_own_links_are_followed(path):
    program = f"""
from ragmon.capture.exporters import JsonlExporter
from ragmon.core.record import Record
JsonlExporter({path!r}, lambda record: record).submit(Record(qid="a"))
"""
    ended = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, check=True, timeout=TIMEOUT
    )
    assert json.loads(ended.stdout)["qid"] == "a"
