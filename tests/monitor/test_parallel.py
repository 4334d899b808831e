"""Several processes: the same digest, the same counts and the same line numbers as one."""

from __future__ import annotations

import gc
import gzip
import json
import os
import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.core.policy import Policy
from ragmon.monitor.replay import run_files
from tests.support.mutated_lines import Mutator
from tests.support.trace_files import good, scorer, write

NO_GATES = Policy(gates=())


def odd_lines(seed=0):
    """Good records of many kinds among blank, broken and over-long lines."""
    for n in range(seed, seed + 400):
        if n % 37 == 5:
            yield b"{broken\n"
        if n % 61 == 7:
            yield b'{"qid":true}\n'
        if n % 97 == 11:
            yield b"\n   \n"
        if n % 301 == 200:
            yield b'{"x":"' + b"x" * (9 << 20) + b'"}\n'
        claim = ("the answer", "not in context", "something else", "")[n % 4]
        yield good(
            n,
            ts=1_763_683_200 + n * 60,
            answer_json={"claim": claim, "citations": ["d1"] if n % 3 else ["d9"]},
            latency_ms={"total": 5.5 * n},
            build=f"b{n % 2}",
        )


def outcome(paths, jobs):
    """Everything a run counted."""
    run = run_files(paths, scorer, jobs=jobs)
    report = json.loads(run.report(NO_GATES).json())
    assert report["digest"] == run.scorer.state.digest()
    return report, run.intake


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A plain file with trouble in it, a gzip file, and a short file without a last newline."""
    folder = tmp_path_factory.mktemp("traces")
    return (
        write(folder / "plain.jsonl", *odd_lines()),
        write(folder / "packed.jsonl.gz", *odd_lines(1000)),
        write(folder / "short.jsonl", good(1), b"\n\n", b"{broken\n", good(2).strip()),
    )


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [2, 3, 7])
def test_several_processes_count_what_one_counts(files, jobs):
    """Digest, metrics, books, rejected reasons and the line numbers of the examples."""
    assert outcome(files, jobs) == outcome(files, 1)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=4))
def test_any_split_into_files_and_processes_counts_what_one_file_counts(tmp_path_factory, cuts):
    """Weird lines, damaged ones among them."""
    lines, folder = Mutator(21, wild=0.1).lines(400), tmp_path_factory.mktemp("split")
    edges = [0, *sorted(cuts), len(lines)]
    parts = [write(folder / f"{n}.jsonl", *lines[begin:end]) for n, (begin, end) in enumerate(pairwise(edges))]
    whole, several = (
        run_files(paths, scorer, jobs=jobs)
        for paths, jobs in (([write(folder / "whole.jsonl", *lines)], 1), (parts, 2))
    )
    assert several.scorer.state.digest() == whole.scorer.state.digest()
    assert (several.scorer.scored, several.intake.rejected) == (whole.scorer.scored, whole.intake.rejected)


@pytest.mark.slow
def test_beside_other_threads_workers_start_afresh_and_count_the_same(files):
    """A fork could inherit a lock some thread holds; a spawned worker finds scorer and gold by their names."""
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        assert outcome(files, 2) == outcome(files, 1)
    finally:
        done.set()
        thread.join()


@pytest.mark.slow
def test_the_order_of_the_files_is_the_order_of_the_examples(files):
    _, _, short = files
    report, intake = outcome([short, short, short], 2)
    assert [(example.path, example.line) for example in intake.examples] == [(short, 4)] * 3
    assert report["records"]["read"] == 9


@pytest.mark.slow
def test_a_compressed_file_is_read_whole_whatever_its_name_says(tmp_path):
    path = tmp_path / "misnamed.jsonl"
    path.write_bytes(gzip.compress(b"".join(map(good, range(300)))))
    assert outcome([str(path), str(path)], 2) == outcome([str(path), str(path)], 1)


def test_the_lines_of_a_trec_query_stay_together(tmp_path):
    """A run that is cut into ranges would give one query several rankings."""
    path = write(tmp_path / "run", *(f"q{n % 3} Q0 d{n} 1 {n / 7} tag\n".encode() for n in range(600)))
    report, _ = outcome([path], 3)
    assert report == outcome([path], 1)[0]
    assert report["records"]["read"] == 3


def test_a_named_pipe_is_read_by_one(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(b"".join(map(good, range(40))),))
    writer.start()
    assert run_files([str(path)], scorer, jobs=2).scorer.scored == 40
    writer.join()


@pytest.mark.parametrize("duplicates", ["last", "first"])
def test_which_record_of_a_question_was_last_is_known_whatever_the_jobs(files, duplicates):
    several = run_files(files, scorer, jobs=3, duplicates=duplicates)
    one = run_files(files, scorer, duplicates=duplicates)
    assert several.scorer.state.digest() == one.scorer.state.digest()
    assert several.report(NO_GATES).duplicate == one.report(NO_GATES).duplicate > 0


def test_the_collector_is_left_as_it_was(files):
    """It rests while records are scored, and only then."""
    run_files(files[2:], scorer)
    assert gc.isenabled()
    gc.disable()
    try:
        run_files(files[2:], scorer)
        assert not gc.isenabled()
    finally:
        gc.enable()
