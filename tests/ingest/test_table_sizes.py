"""Workbooks and Parquet files that hold far more than they weigh: refused by what they say and by what is read."""

from __future__ import annotations

import datetime as dt
import decimal
import gc
import os
import struct
import subprocess
import sys
import zipfile

import pyarrow as pa
import pytest
from pyarrow import parquet

from ragmon.core.errors import InputError, RagmonError
from ragmon.ingest import table_files
from ragmon.ingest.files import ReadSummary, read_file
from ragmon.ingest.gold import GoldSet
from ragmon.ingest.table_files import binary_table
from ragmon.ingest.tables import USUAL
from tests.support.command_line import environment

MIB = 1 << 20
OFFICE = "http://schemas.openxmlformats.org"
MAIN = f'xmlns="{OFFICE}/spreadsheetml/2006/main"'
SHEET_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet.main+xml"
TYPES = (
    f'<Types xmlns="{OFFICE}/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    f'<Override PartName="/xl/workbook.xml" ContentType="{SHEET_TYPE}"/></Types>'
)
HEADER = "<row><c t='inlineStr'><is><t>question</t></is></c><c t='inlineStr'><is><t>answer</t></is></c></row>"
PEAK = """
import resource, subprocess, sys
ended = subprocess.run([sys.executable, "-m", "ragmon", *sys.argv[1:]], capture_output=True, text=True)
print(ended.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10, ended.stderr)
"""


def related(ends):
    links = "".join(
        f'<Relationship Id="r{n}" Type="{OFFICE}/officeDocument/2006/relationships/{kind}" Target="{target}"/>'
        for n, (kind, target) in enumerate(ends)
    )
    return f'<Relationships xmlns="{OFFICE}/package/2006/relationships">{links}</Relationships>'


def workbook(path, *answers, sheets=1):
    """A workbook with a row an answer on each sheet, made piece by piece: an answer is `(text, times)`."""
    names = [f"worksheets/sheet{n}.xml" for n in range(sheets)]
    entries = "".join(f'<sheet name="S{n}" sheetId="{n + 1}" r:id="r{n}"/>' for n in range(sheets))
    book = (
        f'<workbook {MAIN} xmlns:r="{OFFICE}/officeDocument/2006/relationships"><sheets>{entries}</sheets></workbook>'
    )
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as packed:
        packed.writestr("[Content_Types].xml", TYPES)
        packed.writestr("_rels/.rels", related([("officeDocument", "xl/workbook.xml")]))
        packed.writestr("xl/workbook.xml", book)
        packed.writestr("xl/_rels/workbook.xml.rels", related([("worksheet", name) for name in names]))
        for name in names:
            with packed.open(f"xl/{name}", "w", force_zip64=True) as part:
                part.write(f"<worksheet {MAIN}><sheetData>{HEADER}".encode())
                for text, times in answers:
                    part.write(b"<row><c t='inlineStr'><is><t>Who?</t></is></c><c t='inlineStr'><is><t>")
                    for _ in range(times):
                        part.write(text)
                    part.write(b"</t></is></c></row>")
                part.write(b"</sheetData></worksheet>")
    return str(path)


def plain(path, mib, pieces=1):
    """A Parquet file of texts that are written as often as they occur, in as many row groups as there are pieces."""
    table = pa.table({"question": ["Who?"] * mib, "answer": ["x" * MIB] * mib})
    with parquet.ParquetWriter(path, table.schema, use_dictionary=False, compression="zstd") as writer:
        for _ in range(pieces):
            writer.write_table(table)
    return str(path)


def repeated(times, size=MIB):
    """A column with one text many times, which holds it once."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * times, pa.int32()), pa.array(["x" * size]))


def dictionary(path, times):
    parquet.write_table(pa.table({"question": ["Who?"] * times, "answer": repeated(times)}), path, store_schema=False)
    return str(path)


def nested(path, times):
    """One row whose list of contexts holds one text many times."""
    contexts = pa.ListArray.from_arrays([0, times], repeated(times))
    table = pa.table({"question": ["Who?"], "answer": ["Ada"], "contexts": contexts})
    parquet.write_table(table, path, store_schema=False)
    return str(path)


def numbers(path, times):
    """One row with a list of the same number, of which a file needs but the length."""
    column = pa.ListArray.from_arrays([0, times], pa.array([7], pa.int64()).take(pa.array([0] * times)))
    parquet.write_table(pa.table({"question": ["Who?"], "answer": ["Ada"], "scores": column}), path)
    return str(path)


def rows(path):
    kind = "xlsx" if path.endswith("xlsx") else "parquet"
    return [row for _, row in binary_table(path, kind, USUAL).rows]


def refused(path):
    """What is said of a file with more than 4 MiB inside; the file itself weighs little."""
    assert os.path.getsize(path) < MIB  # noqa: PTH202
    with pytest.raises(InputError, match=r"holds \d+ MiB, more than the 4 MiB that are read") as caught:
        rows(path)
    assert str(caught.value).startswith(path)
    assert "CSV or JSON Lines" in caught.value.hint
    return caught


@pytest.fixture
def small(monkeypatch):
    """The limit is 4 MiB."""
    monkeypatch.setattr(table_files, "MAX_TABLE", 4 * MIB)


LARGE = {
    "a cell": lambda path: workbook(path / "t.xlsx", (b"x" * MIB, 5)),
    "many rows": lambda path: workbook(path / "t.xlsx", *[(b"x" * 1000, 1)] * 5000),
    "many sheets": lambda path: workbook(path / "t.xlsx", (b"x" * MIB, 1), sheets=6),
    "texts": lambda path: plain(path / "t.parquet", 5),
    "row groups": lambda path: plain(path / "t.parquet", 1, 6),
    "a text that repeats": lambda path: dictionary(path / "t.parquet", 6),
    "a text that repeats in a list": lambda path: nested(path / "t.parquet", 6),
    "a number that repeats in a list": lambda path: numbers(path / "t.parquet", 2 * MIB),
}


@pytest.mark.parametrize("name", LARGE)
def test_what_is_packed_into_a_small_file_is_refused_beyond_the_limit(tmp_path, small, name):
    refused(LARGE[name](tmp_path))


@pytest.mark.parametrize("name", ["a cell", "texts"])
def test_gold_is_refused_alike(tmp_path, small, name):
    with pytest.raises(RagmonError, match="more than the 4 MiB"):
        GoldSet.load(LARGE[name](tmp_path))


def test_what_is_within_the_limit_is_read(tmp_path, small):
    for path in (workbook(tmp_path / "t.xlsx", (b"x" * MIB, 3)), dictionary(tmp_path / "t.parquet", 3)):
        assert {len(row["answer"]) for row in rows(path)} <= {3 * MIB, MIB}


def test_a_directory_that_names_a_smaller_size_gets_no_more_than_that_read(tmp_path, small):
    path = workbook(tmp_path / "t.xlsx", (b"x" * MIB, 40))
    told = bytearray((tmp_path / "t.xlsx").read_bytes())
    place = told.rindex(b"PK\x01\x02")  # the directory's entry of the sheet; its size is at 24
    told[place + 24 : place + 28] = struct.pack("<I", 3 * MIB)
    (tmp_path / "t.xlsx").write_bytes(told)
    with pytest.raises(InputError, match="cannot be read"):
        rows(path)


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # openpyxl leaves a file to the collector
@pytest.mark.parametrize("damage", [b"</row>", b"<c"])
def test_a_workbook_whose_sheet_is_broken_is_an_error_of_that_file(tmp_path, damage):
    path = workbook(tmp_path / "t.xlsx", (b"Ada" + damage, 1))
    with pytest.raises(InputError, match=r"t\.xlsx: cannot be read"):
        rows(path)
    gc.collect()


@pytest.mark.parametrize("kind", ["xlsx", "parquet"])
def test_a_row_beyond_the_limit_of_a_line_is_rejected_and_the_next_one_read(tmp_path, kind):
    if kind == "xlsx":
        path = workbook(tmp_path / "t.xlsx", (b"Ada", 1), (b"x" * MIB, 9), (b"Bo", 1))
    else:
        path = str(tmp_path / "t.parquet")
        parquet.write_table(pa.table({"question": ["Who?"] * 3, "answer": ["Ada", "x" * 9 * MIB, "Bo"]}), path)
    intake = ReadSummary()
    assert [record.answer_json.claim for record in read_file(path, intake)] == ["Ada", "Bo"]
    assert intake.rejected == {"oversize": 1}


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda path: workbook(path / "t.xlsx", (b"x" * MIB, 1024)),
        lambda path: plain(path / "t.parquet", 32, 32),
        lambda path: dictionary(path / "t.parquet", 1024),
        lambda path: nested(path / "t.parquet", 1024),
    ],
)
def test_a_gigabyte_in_a_small_file_costs_no_memory(tmp_path, make):
    path = make(tmp_path)
    command = [sys.executable, "-c", PEAK, "replay", path]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment(), check=True, timeout=300)
    code, peak, told = ended.stdout.split(" ", 2)
    assert code == "3"
    assert "more than the 512 MiB that are read" in told
    assert int(peak) < 300


COLUMNS = {
    "texts": ["a", "a", None],
    "lists": [["a", "b"], None, []],
    "objects": [{"a": "x", "b": {"c": "y"}}, None, {"a": None, "b": None}],
    "lists of objects": [[{"id": "d1", "text": "t", "n": 1}], [], None],
    "lists of lists": [[["a"]], [[]], None],
    "maps": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
    "long texts": pa.array(["a", "b", None], pa.large_string()),
    "long lists": pa.array([["a"], ["b"], None], pa.large_list(pa.string())),
    "pairs": pa.array([["a", "b"]] * 3, pa.list_(pa.string(), 2)),
    "bytes": [b"x", b"y", None],
    "categories": pa.array(["a", "b", "a"]).dictionary_encode(),
    "numbers": [1.5, float("inf"), None],
    "decimals": [decimal.Decimal("1.5")] * 3,
    "times": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)] * 3,
    "nothing": pa.nulls(3),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_are_those_that_arrow_reads(tmp_path, name):
    path = str(tmp_path / "t.parquet")
    parquet.write_table(pa.table({"question": ["Who?"] * 3, name: COLUMNS[name]}), path)
    assert rows(path) == parquet.ParquetFile(path).read().to_pylist()
