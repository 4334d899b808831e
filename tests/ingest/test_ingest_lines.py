"""Bytes to lines: where lines end, how they are counted, and how compressed streams break off."""

from __future__ import annotations

import gzip
import io
import os
import sys
import threading
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ragmon.core.errors import InputError, RagmonError
from ragmon.ingest import files as compression
from ragmon.ingest import files as lines
from ragmon.ingest.files import LineReader, ReadSummary, byte_ranges, open_bytes, read_files
from ragmon.ingest.lines import Rejected, decode
from tests.support.trace_files import good, take, write

SHORT = 8
"""The longest line, in tests that need long ones."""


def read(content, start=0, length=None, before=0):
    """The lines of some bytes with their numbers, and what was rejected, from a place where `before` lines are past."""
    rejected = []
    stream = io.BytesIO(content)
    stream.seek(start)
    reader = LineReader(stream, lambda number, reason, _: rejected.append((before + number, reason)), length=length)
    return [(before + reader.number, line) for line in reader], rejected, before + reader.number


@pytest.fixture
def short_lines(monkeypatch):
    monkeypatch.setattr(lines, "MAX_LINE", SHORT)


@pytest.mark.parametrize("inside", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\r"])
def test_a_line_ends_at_the_newline_byte_and_nowhere_else(inside):
    line = f"a{inside}b".encode()
    assert read(line + b"\n" + line) == ([(1, line + b"\n"), (2, line)], [], 2)


def test_blank_lines_are_passed_over_but_counted():
    assert read(b"\n  \t\na\n\r\n\nb")[0] == [(3, b"a\n"), (6, b"b")]


@pytest.mark.usefixtures("short_lines")
def test_a_line_of_the_limit_is_read_and_a_longer_one_is_skipped_to_its_end():
    found, rejected, _ = read(b"a" * SHORT + b"\n" + b"b" * (3 * SHORT) + b"\nc\n" + b"d" * (SHORT + 1))
    assert found == [(1, b"a" * SHORT + b"\n"), (3, b"c\n")]
    assert rejected == [(2, "oversize"), (4, "oversize")]


@pytest.mark.usefixtures("short_lines")
@given(st.lists(st.sampled_from([b"a", b"\n", b" ", b"\r", b"b" * SHORT]), max_size=40).map(b"".join))
def test_any_bytes_give_the_lines_a_plain_split_gives(content):
    wanted, long = [], []
    for number, line in enumerate(content.split(b"\n"), 1):
        if len(line) > SHORT:
            long.append((number, "oversize"))
        elif line.strip():
            wanted.append((number, line))
    found, rejected, _ = read(content)
    assert [(number, line.removesuffix(b"\n")) for number, line in found] == wanted
    assert rejected == long


@pytest.mark.usefixtures("short_lines")
@given(
    st.lists(st.sampled_from([b"a", b"\n", b" \n", b"b" * SHORT, b"xyz\n"]), max_size=40).map(b"".join),
    st.integers(1, 9),
)
def test_byte_ranges_share_out_every_line_exactly_once(tmp_path_factory, content, parts):
    """Ranges follow each other, start at line starts, and together give the lines of the whole file."""
    path = tmp_path_factory.mktemp("ranges") / "file"
    path.write_bytes(content)
    ranges = byte_ranges(str(path), parts)
    assert 1 <= len(ranges) <= parts
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges[:-1])]
    assert ranges[-1][1] == len(content)
    assert all(start == 0 or content[start - 1 : start] == b"\n" for start, _ in ranges)
    found, rejected, before = [], [], 0
    for start, end in ranges:
        lines_here, rejected_here, before = read(content, start, end - start, before)
        found += lines_here
        rejected += rejected_here
    assert (found, rejected, before) == read(content)


@pytest.mark.parametrize("name", ["t.jsonl", "t.gz", "t.zst"])
def test_a_compressed_file_gives_what_the_plain_one_gives(tmp_path, name):
    records, intake = take(write(tmp_path / name, *map(good, range(50))))
    assert [record.qid for record in records] == [f"q{n % 20}" for n in range(50)]
    assert (intake.read, intake.rejected, intake.lines) == (50, {}, 50)


@pytest.mark.parametrize("name", ["misnamed.jsonl", "misnamed.gz"])
@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress, bytes])
def test_compression_is_told_by_the_content_whatever_the_name_says(tmp_path, name, compress):
    (tmp_path / name).write_bytes(compress(good()))
    assert len(take(tmp_path / name)[0]) == 1


def test_gzip_members_zstd_frames_and_padding_follow_each_other(tmp_path):
    """Rotated logs are concatenated; tar and tape pad with zeros; pzstd writes frames to be skipped."""
    members = gzip.compress(good(0)) + b"\0" * 70_000 + gzip.compress(b"") + gzip.compress(good(1)) + b"\0" * 9
    skippable = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"meta"
    frames = skippable + zstandard.compress(good(0)) + skippable + zstandard.compress(good(1))
    for name, content in (("t.gz", members), ("t.zst", frames)):
        (tmp_path / name).write_bytes(content)
        records, intake = take(tmp_path / name)
        assert ([record.qid for record in records], intake.rejected) == (["q0", "q1"], {})


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
@pytest.mark.parametrize("read", [1, 7, 16])
def test_members_and_frames_may_end_where_a_read_ends(tmp_path, monkeypatch, compress, read):
    monkeypatch.setattr(compression, "_READ", read)
    monkeypatch.setattr(compression, "_ZSTD_READ", read)
    monkeypatch.setattr(compression, "_INFLATED", 5)
    content = b"".join(compress(good(n, tags={"n": "x" * n})) for n in range(20))
    (tmp_path / "packed").write_bytes(content)
    records, intake = take(tmp_path / "packed")
    assert (len(records), intake.rejected) == (20, {})


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_wherever_a_compressed_file_is_cut_the_lines_before_are_read_and_the_cut_is_counted(tmp_path, compress):
    whole = compress(b"".join(map(good, range(40))))
    path = tmp_path / "cut"
    seen = []
    for cut in range(8, len(whole)):
        path.write_bytes(whole[:cut])
        records, intake = take(path)
        assert [record.qid for record in records] == [f"q{n % 20}" for n in range(len(records))]
        assert intake.rejected == {"truncated": 1}
        assert intake.read == len(records) + 1
        assert "ends too early" in str(intake.examples[0])
        seen.append(len(records))
    assert seen == sorted(seen)


def test_a_cut_gzip_file_gives_every_line_that_can_be_inflated(tmp_path):
    """Not a buffer less: megabytes of good lines stand before the cut."""
    whole = gzip.compress(b"".join(good(n, tags={"n": str(n * 7919 % 10_007)}) for n in range(20_000)))
    cut = whole[: len(whole) * 2 // 3]
    (tmp_path / "cut.gz").write_bytes(cut)
    possible = zlib.decompressobj(31).decompress(cut).count(b"\n")
    records, intake = take(tmp_path / "cut.gz")
    assert (len(records), intake.rejected) == (possible, {"truncated": 1})
    assert intake.examples[0].line == possible + 1


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_damage_anywhere_in_a_compressed_file_is_counted_not_raised(tmp_path, compress):
    whole = compress(b"".join(map(good, range(40))))
    for place in range(4, len(whole), 3):
        (tmp_path / "damaged").write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        records, intake = take(tmp_path / "damaged")
        assert intake.read == len(records) + intake.rejections


def test_garbage_after_a_gzip_member_is_counted_and_the_member_is_read(tmp_path):
    (tmp_path / "t.gz").write_bytes(gzip.compress(good()) + b"garbage")
    records, intake = take(tmp_path / "t.gz")
    assert (len(records), intake.rejected) == (1, {"truncated": 1})
    assert "damaged" in intake.examples[0].detail


def test_zstd_without_its_extra_says_what_to_install(tmp_path, monkeypatch):
    path = write(tmp_path / "t.zst", good())
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(RagmonError, match="zstandard") as caught:
        take(path)
    assert "pip install" in caught.value.hint


def test_what_cannot_be_opened_is_named_with_a_hint(tmp_path):
    for path, said in ((tmp_path / "absent.jsonl", "No such file"), (tmp_path, "directory")):
        with pytest.raises(InputError, match=said) as caught:
            take(path)
        assert str(path) in str(caught.value)
        assert caught.value.hint


def test_utf_16_is_refused_by_name_instead_of_line_by_line(tmp_path):
    """Some shells write it when output is redirected."""
    (tmp_path / "t.jsonl").write_bytes(good().decode().encode("utf-16"))
    with pytest.raises(InputError, match=r"t\.jsonl: this is UTF-16"):
        take(tmp_path / "t.jsonl")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reading fails")
def test_a_file_that_cannot_be_read_on_is_named():
    with pytest.raises(InputError, match="/proc/self/mem: cannot be read"):
        take("/proc/self/mem")


def test_closed_standard_input_is_an_error_with_a_hint(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(InputError, match="standard input is closed"):
        take("-")


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_standard_input_may_be_compressed_and_any_binary_stream(monkeypatch, compress):
    content = compress(good(3))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    assert [record.qid for record in take("-")[0]] == ["q3"]


def test_a_named_pipe_is_read_to_its_end_with_progress_asked_for(tmp_path):
    """`ragmon replay <(zcat …)` has no position to tell."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"".join(map(good, range(20))) * 1000,))
    writer.start()
    intake = ReadSummary()
    assert len(list(read_files([str(path)], intake, lambda _: pytest.fail("a pipe has no position")))) == 20_000
    writer.join()


def test_progress_counts_the_bytes_of_all_files_together(tmp_path):
    files = [write(tmp_path / name, *map(good, range(20_000))) for name in ("a.jsonl", "b.gz", "c.jsonl")]
    seen = []
    list(read_files(files, ReadSummary(), seen.append))
    sizes = [Path(path).stat().st_size for path in files]
    assert seen == sorted(seen)
    assert sum(sizes[:2]) < seen[-1] <= sum(sizes)


def test_a_reader_that_is_left_early_closes_its_file(tmp_path):
    """An open file would be a ResourceWarning, which fails this suite."""
    path = write(tmp_path / "t.gz", *map(good, range(100)))
    records = read_files([path], ReadSummary())
    assert next(records).qid == "q0"
    records.close()
    with open_bytes(path) as (stream, raw):
        stream.readline()
    assert raw.closed


def test_of_a_line_that_is_rejected_no_field_is_counted_as_unread():
    told = []
    with pytest.raises(Rejected):
        decode(b'{"v":2,"answer_json":"text"}', lambda *said: told.append(said))
    assert told == []
