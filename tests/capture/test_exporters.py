"""Where records go: several sinks at once, and a trace log that survives what disks and processes do."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from ragmon.capture.exporters import JsonlExporter, Tee
from ragmon.core.errors import RagmonError
from ragmon.core.record import Answer, Record
from ragmon.testing import Collected
from tests.support.capturing import Gate


def test_two_sinks_both_get_every_record_also_where_one_of_them_fails():
    gate, collected = Gate(), Collected()
    gate.opened.set()
    for tee in (Tee(gate, collected), Tee(collected, gate)):
        assert tee.deliver([Record(q="poison")]) == {"export_failed": 1}
        assert tee.deliver([Record(q="fine")]) == {}
    assert [record.q for record in collected.records] == ["poison", "fine"] * 2
    assert [record.q for record in gate.records] == ["fine"] * 2


def lines(path):
    return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]


def test_a_trace_log_is_appended_to_and_complete_after_every_record(tmp_path):
    """What was written survives a killed process: nothing waits in a buffer."""
    path = tmp_path / "deep" / "trace.jsonl"
    for qid in "ab":
        log = JsonlExporter(path, lambda record: record)
        log.submit(Record(v=1, qid=qid, answer_json=Answer("two\nlines\u2028", [])))
        assert [line["qid"] for line in lines(path)] == list("ab"[: "ab".index(qid) + 1])
        log.close()


def test_several_writers_may_share_a_trace_log(tmp_path):
    path = tmp_path / "trace.jsonl"
    logs = [JsonlExporter(path, lambda record: record) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda log: [log.submit(Record(v=1, qid="x" * n)) for n in range(300)], logs))
    assert sorted(len(line["qid"]) for line in lines(path)) == sorted([*range(300)] * 4)
    for log in logs:
        log.close()


class Disk:
    """A file on a disk that fills up: the next write takes only so many bytes."""

    def __init__(self, file):
        self.file = file
        self.room = None

    def write(self, data):
        room, self.room = self.room, None
        return self.file.write(data[:room])


def test_after_a_full_disk_the_next_record_starts_on_a_line_of_its_own(tmp_path):
    path = tmp_path / "trace.jsonl"
    log = JsonlExporter(path, lambda record: record)
    log._file = disk = Disk(log._file)
    log.submit(Record(v=1, qid="a"))
    disk.room = 5
    with pytest.raises(OSError, match="No space left"):
        log.submit(Record(v=1, qid="b"))
    log.submit(Record(v=1, qid="c"))
    log.submit(Record(v=1, qid="d"))
    assert path.read_bytes().split(b"\n") == [
        b'{"v":1,"qid":"a"}',
        b'{"v":',
        b'{"v":1,"qid":"c"}',
        b'{"v":1,"qid":"d"}',
        b"",
    ]
    disk.file.close()


def test_a_trace_log_that_cannot_be_opened_says_so(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path, tmp_path / "file" / "trace.jsonl"):
        with pytest.raises(RagmonError, match="cannot be written") as caught:
            JsonlExporter(path, lambda record: record)
        assert str(path) in str(caught.value)
        assert caught.value.hint
