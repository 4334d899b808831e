"""Threads of the native core are told everything once, and count what one of them counts."""

from __future__ import annotations

import threading
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ragmon.ingest.summary import ReadSummary
from ragmon.monitor import native_scan
from ragmon.monitor.native_scan import NativeCounts
from ragmon.monitor.replay import Run, Task, run_files
from ragmon.native.library import SWITCH
from tests.support.both_paths import assert_equal, forget_hints
from tests.support.mutated_lines import Mutator
from tests.support.native_core import needs_native
from tests.support.native_fuzz import usual
from tests.support.trace_files import good

pytestmark = needs_native


@pytest.fixture(autouse=True)
def with_core(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")


@pytest.fixture(scope="module")
def lines():
    return Mutator(21, wild=0.1).lines(400)


def digest(run):
    return run.scorer.state.digest(), run.scorer.scored, run.scorer.unmatched


@settings(max_examples=8, deadline=None)
@given(cuts=st.lists(st.integers(0, 400), max_size=4))
def test_any_split_into_scans_counts_what_one_scan_counts(tmp_path_factory, lines, cuts):
    folder = tmp_path_factory.mktemp("split")
    edges = [0, *sorted(cuts), len(lines)]
    whole, paths = folder / "whole.jsonl", []
    whole.write_bytes(b"".join(lines))
    for number, (begin, end) in enumerate(pairwise(edges)):
        paths.append(folder / f"{number}.jsonl")
        paths[-1].write_bytes(b"".join(lines[begin:end]))
    expected = Run(usual(), ReadSummary())
    expected.read([Task(str(whole))])
    run = Run(usual(), ReadSummary())
    counts = NativeCounts(run.scorer)
    for path in reversed(paths):
        part = Run(usual(), ReadSummary())
        part.read([Task(str(path))], counts=counts)
        run.merge(part.counted())
    counts.finish()
    assert digest(run) == digest(expected)


def test_rules_and_gold_are_described_once_for_all_threads(tmp_path, monkeypatch):
    made, describe = [], native_scan.Described._items
    monkeypatch.setattr(
        native_scan.Described, "_items", lambda self, items: (made.append(self), describe(self, items))[1]
    )
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(map(good, range(2000))))
    forget_hints()
    run_files([str(path)], usual, jobs=2)
    assert made
    assert len(set(map(id, made))) == 1
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("ragmon-scan")]


@pytest.mark.slow
def test_windows_and_histories_of_several_jobs_are_those_of_plain_python(tmp_path):
    found = [line for line in Mutator(6, wild=0).lines(300) if b"1e+300" not in line and b"25340" not in line]
    path = tmp_path / "traces.jsonl"
    path.write_bytes(b"".join(found))
    assert_equal([path], usual, over_time=True, jobs=2)
