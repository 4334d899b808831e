"""Replay with the native core says what plain Python says, to the last field, for every input."""

from __future__ import annotations

import gzip
import json
import os
import random
import time
from pathlib import Path

import pytest

from ragmon.core.record import encode
from ragmon.core.refusal import LANGUAGES
from ragmon.gold import GoldSet
from ragmon.ingest import blocks
from ragmon.monitor.native_scan import NativeScan
from ragmon.monitor.native_setup import characters
from ragmon.monitor.replay import run_files
from ragmon.native.scanning import Setting
from ragmon.scoring.scorer import Scorer
from tests.support.both_paths import assert_equal, core
from tests.support.mutated_lines import Mutator
from tests.support.native_core import needs_native
from tests.support.native_fuzz import SCORERS, fuzz, no_gold, other_rules, usual
from tests.support.oracle.draw import Draw
from tests.support.random_records import gold_set, record
from tests.support.trace_files import good
from tests.support.trace_files import scorer as good_scorer

pytestmark = needs_native
ROOT = Path(__file__).parents[2]


def write(path, lines):
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture
def by_python(monkeypatch):
    """The lines that the core hands back to Python."""
    lines, score = [], NativeScan._line
    monkeypatch.setattr(NativeScan, "_line", lambda self, *line: (lines.append(line[2]), score(self, *line))[1])
    return lines


@pytest.mark.parametrize("make", SCORERS)
@pytest.mark.parametrize("seed", range(2))
def test_weird_lines_count_alike(tmp_path, make, seed):
    assert_equal([write(tmp_path / "traces.jsonl", Mutator(seed).lines(700))], make)


@pytest.mark.slow
def test_windows_and_histories_are_the_same(tmp_path):
    lines = [line for line in Mutator(5, wild=0).lines(200) if b"1e+300" not in line and b"25340" not in line]
    assert_equal([write(tmp_path / "traces.jsonl", lines)], usual, over_time=True)


def test_most_lines_that_nobody_damaged_are_the_cores(tmp_path, by_python):
    path = write(tmp_path / "traces.jsonl", (good(n, v=1, source="live", session=f"s{n % 9}") for n in range(3000)))
    assert assert_equal([path], usual)["report"]["records"]["scored"] == 3000
    assert len(by_python) < 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_weird_lines_count_alike(tmp_path, seed):
    lines = Mutator(1000 + seed, wild=seed % 4 / 8).lines(5000)
    assert_equal([write(tmp_path / "traces.jsonl", lines)], SCORERS[seed % 3])


@pytest.mark.slow
def test_a_minute_of_fuzzing_finds_no_difference(tmp_path):
    """`make fuzz` goes on for half an hour; the seed is printed where the paths differ."""
    seed = int(time.time()) * 1000
    count, lines = fuzz(tmp_path, 60, seed)
    assert not lines, f"seed {seed}, file {count}: {lines}"


@pytest.mark.parametrize("jobs", [2, 3])
def test_threads_count_what_processes_count(tmp_path, jobs):
    lines = Mutator(9, wild=0.05).lines(1500)
    path = write(tmp_path / "traces.jsonl", lines)
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b"".join(Mutator(10).lines(300))))
    assert_equal([path, packed], usual, jobs=jobs)


@pytest.mark.parametrize(
    "ending",
    [
        b"",
        b"\n",
        b"\n\n \n",
        b'\n{"x":"' + b"x" * (9 << 20) + b'"}\n',
        b"\n" + b"y" * (8 << 20) + b"\n",
        b"\n" + b"y" * (8 << 20),
        b"\n" + b"z" * ((8 << 20) + 1) + b"\n\n{broken",
    ],
    ids=["none", "newline", "blank", "over-long", "longest", "longest at the end", "over-long and broken"],
)
def test_ends_of_files_are_read_alike(tmp_path, ending):
    lines = b"".join(map(good, range(50))).rstrip(b"\n") + ending
    assert_equal([write(tmp_path / "traces.jsonl", [lines]), write(tmp_path / "more.jsonl", [good(3)])], good_scorer)


@pytest.mark.slow
def test_a_line_of_a_hundred_megabytes_is_passed_over(tmp_path):
    lines = [good(1), b'{"v":1,"q":"' + b"x" * (100 << 20) + b'"}\n', good(2)]
    found = assert_equal([write(tmp_path / "traces.jsonl", lines)], good_scorer)
    assert found["intake"]["examples"][0]["line"] == 2


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_truncated_gzip_file_is_read_as_far_as_it_goes(tmp_path, cut):
    path = tmp_path / "traces.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(Mutator(3, wild=0).lines(400)))[:-cut])
    assert assert_equal([path], usual)["report"]["records"]["rejected"]["truncated"] == 1


def test_ids_of_other_fields_are_looked_at_as_by_python(tmp_path):
    """After documents that are objects, Python looks whether another of their ids would fit gold."""
    lines = [good(n, v=1, retrieved_ids=["x1"]) for n in range(300)]
    lines[150] = good(1, retrieved_ids=[{"id": "x1", "key": "d1"}])
    found = assert_equal([write(tmp_path / "traces.jsonl", lines)], good_scorer)
    assert any(candidates for *_, candidates in found["captured"].values())


@pytest.mark.parametrize("make", SCORERS)
@pytest.mark.parametrize("block", [64, 4096])
def test_the_size_of_a_block_changes_nothing(tmp_path, monkeypatch, make, block):
    monkeypatch.setattr(blocks, "SMALLEST", block)
    monkeypatch.setattr(blocks, "_GROWTH", 1)
    assert_equal([write(tmp_path / "traces.jsonl", Mutator(11, wild=0.1).lines(300))], make)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(40))
def test_records_of_every_kind_of_the_contract_count_alike(tmp_path, number):
    """The records of the oracle's tests, drawn from numbered random bytes."""
    draw = Draw(random.Random(number).randbytes(8000))
    gold = gold_set(draw)
    lines = [encode(record(draw)) for _ in range(60)]
    assert_equal([write(tmp_path / "traces.jsonl", lines)], lambda: Scorer(gold))


def trace_files():
    """The trace files of the repository."""
    folders = (ROOT / "tests" / "data", ROOT / "examples")
    names = sorted(str(path) for folder in folders for path in folder.rglob("*.jsonl") if path.stat().st_size < 4 << 20)
    return [name for name in names if "gold" not in os.path.basename(name)]  # noqa: PTH119


@pytest.mark.parametrize("name", trace_files(), ids=lambda name: os.path.relpath(name, ROOT))
def test_the_files_of_the_repository_count_alike(name):
    gold = Path(name).with_name("gold.jsonl")
    make = (lambda: Scorer(GoldSet.load(gold))) if gold.is_file() else no_gold
    try:
        assert_equal([name], make)
    except Exception as error:
        if "gold" not in str(error):  # a file of gold in the place of traces is refused by both
            raise


def test_a_block_over_which_the_core_fails_is_pythons(tmp_path, monkeypatch, capfd):
    """A panic ends at the ABI: nothing of the block is counted twice, and the process lives."""
    path = write(tmp_path / "traces.jsonl", (good(n, v=1) for n in range(2000)))
    read = NativeScan._block

    def block(self, *arguments):
        self._scan.set(Setting.FAULT, 700)
        return read(self, *arguments)

    monkeypatch.setattr(NativeScan, "_block", block)
    assert assert_equal([path], good_scorer)["report"]["records"]["scored"] == 2000
    assert "a fault that a test asked for" in capfd.readouterr().err


def test_counts_are_handed_over_before_they_need_much_memory(tmp_path, monkeypatch):
    """Whenever they are: here after every block."""
    read = NativeScan._block

    def block(self, *arguments):
        counted = read(self, *arguments)
        self.finish()
        return counted

    monkeypatch.setattr(NativeScan, "_block", block)
    assert_equal([write(tmp_path / "traces.jsonl", Mutator(12, wild=0).lines(2000))], usual)


def test_what_follows_single_records_is_pythons(by_python, tmp_path):
    """Observers see every record, so the core is not used."""

    class Observer:
        def collect(self, *_):
            pass

    path = write(tmp_path / "traces.jsonl", map(good, range(20)))
    with core(on=True):
        run = run_files([str(path)], lambda: Scorer(observers=[Observer()]))
    assert run.scorer.scored == 20
    assert by_python == []


def test_no_word_of_an_unspaced_script_is_of_folding_characters():
    """Else the core would have to search for parts of text, too."""
    known = characters()
    for language in LANGUAGES:
        for part in () if language.is_spaced else language.triggers.split():
            places = [8 * (ord(char) - 0x80) for char in part]
            assert any(place >= 0 and not any(known[place : place + 8]) for place in places), part


def test_rules_of_the_configuration_decide_on_both_paths(tmp_path):
    claims = ("n/a", "straße", "sorry", "42 it is", "I do not know.", "not in context")
    lines = [
        good(n, v=1, pipeline=name, answer_json={"claim": claim, "citations": None}, latency_ms={"total": 50.0 * n})
        for n, (name, claim) in enumerate([(name, claim) for name in ("support", "sales", "x") for claim in claims] * 9)
    ]
    report = assert_equal([write(tmp_path / "traces.jsonl", lines)], other_rules)["report"]
    assert json.dumps(report["series"]).count("answered_within") >= 3
