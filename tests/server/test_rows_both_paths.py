"""Whole rows of a journal are counted by the native core as plain Python counts them, whatever stands between them."""

from __future__ import annotations

import msgspec
import pytest

from ragmon.core import capture_hints
from ragmon.core.record import Answer, Label, Latency, Record, Sampling, encode_entry
from ragmon.monitor import native_rows
from ragmon.monitor.native_rows import RowScan
from ragmon.native.scanning import NativeFaultError, Setting
from ragmon.server.pipeline.state import ServerState
from ragmon.stream.accounts import BatchCounts
from tests.support.both_paths import core, forget_hints
from tests.support.journal_rows import NOON, Rows, applied, settings
from tests.support.native_core import needs_native

pytestmark = needs_native


def unordered(value):
    """A saved form in which lists have no order: what was counted first is no difference."""
    if isinstance(value, dict):
        return {key: unordered(each) for key, each in value.items()}
    if isinstance(value, list):
        return sorted(map(unordered, value), key=repr)
    return value


def told(state):
    """All that a server counts, with its alarms."""
    saved = unordered(msgspec.json.decode(state.dump()))
    return saved, state.engine.scorer.state.digest(), list(state.engine.transitions)


@pytest.fixture
def by_core(monkeypatch):
    """How many records of each row the core has counted."""
    counted, finish = [], RowScan.finish

    def counts(self, now):
        before = self._scorer.scored
        row = finish(self, now)
        counted.append(self._scorer.scored - before)
        return row

    monkeypatch.setattr(RowScan, "finish", counts)
    return counted


def plain(number=0, **other):
    """A record that the core counts once it knows its names."""
    given = {
        "v": 1,
        "trace_id": f"{number:032x}",
        "ts": NOON,
        "pipeline": "support",
        "source": "live",
        "retrieved_ids": ["d1"],
        "answer_json": Answer("so it is", ["d1"]),
        "latency_ms": Latency(100.0),
        "session": f"s{number % 7}",
        "sampling": Sampling(),
    }
    return Record(**{**given, **other})


@pytest.mark.parametrize("seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 12))])
def test_rows_of_every_kind_count_alike(tmp_path, by_core, monkeypatch, seed):
    monkeypatch.setattr(native_rows, "_FRUITLESS", 1 << 30)
    configured, found = settings(tmp_path), []
    for on in (True, False):
        with core(on=on):
            state, failures = applied(configured, Rows(seed).rows(140))
            found.append((told(state), failures))
    assert found[0] == found[1]
    assert sum(by_core) > 500


def test_usual_rows_are_the_cores_but_for_the_first_of_every_minute(tmp_path, by_core):
    rows = [(NOON + second, [plain(n, ts=NOON + second) for n in range(50)]) for second in range(0, 180, 2)]
    with core(on=True):
        state, _ = applied(settings(tmp_path), rows)
    assert state.engine.scorer.scored == 50 * len(rows)
    assert len(by_core) >= len(rows) - 8


def test_what_an_instrumentation_left_out_is_pythons_to_say_and_the_rest_of_the_row_is_not(tmp_path, by_core):
    configured, found = settings(tmp_path), []
    hidden = plain(9, sampling=None, answer_json=None)
    rows = [(NOON + n, [hidden, *(plain(100 * n + k, ts=NOON + n) for k in range(40))]) for n in range(5)]
    capture_hints.instrumentations.put(hidden.trace_id, "openinference")
    for on in (True, False):
        with core(on=on):
            found.append(told(applied(configured, rows)[0]))
    forget_hints()
    assert found[0] == found[1]
    assert sum(by_core) == 40 * len(by_core) > 0


def test_a_row_with_a_trace_that_a_label_waits_for_is_pythons(tmp_path, by_core):
    configured, found = settings(tmp_path), []
    rows = [(NOON + n, [plain(100 * n + k, ts=NOON + n) for k in range(40)]) for n in range(5)]
    rows.insert(3, (NOON + 2.5, [Label(trace_id=rows[3][1][7].trace_id, rater="ada", correct=False)]))
    for on in (True, False):
        with core(on=on):
            found.append(told(applied(configured, rows)[0]))
    assert found[0] == found[1]
    assert len(by_core) == 2
    assert applied(configured, rows)[0].engine.labels.book.results["joined"] == 1


def test_rows_with_nothing_for_the_core_are_not_read_for_a_while(tmp_path):
    with core(on=True):
        state = ServerState(settings(tmp_path))
    scan = state.engine._rows
    errors = [plain(n, error="Boom") for n in range(40)]
    lines = b"".join(map(encode_entry, errors))
    for seq in range(1, 12):
        state.apply(seq, NOON + seq, BatchCounts(), errors, lines=lines)
    assert scan._skipped
    assert state.engine.scorer.scored == 11 * 40


def test_a_block_over_which_the_core_fails_is_pythons(tmp_path, by_core):
    configured = settings(tmp_path)
    rows = [(NOON + n, [plain(100 * n + k, ts=NOON + n) for k in range(40)]) for n in range(6)]
    with core(on=True):
        state = ServerState(configured)
        state.engine._rows._scan.set(Setting.FAULT, 25)
        for seq, (now, entries) in enumerate(rows, 1):
            state.apply(seq, now, BatchCounts(), entries, lines=b"".join(map(encode_entry, entries)))
    assert state.engine.scorer.scored == 240
    assert not by_core


def test_a_core_that_fails_while_it_counts_is_left_and_its_row_is_counted_once(tmp_path, monkeypatch):
    configured = settings(tmp_path)
    rows = [(NOON + n, [plain(100 * n + k, ts=NOON + n) for k in range(40)]) for n in range(6)]

    def fails(self, now):
        raise NativeFaultError("it failed")

    with core(on=True):
        monkeypatch.setattr(RowScan, "finish", fails)
        state, _ = applied(configured, rows)
    with core(on=False):
        expected, _ = applied(configured, rows)
    assert told(state) == told(expected)
    assert not state.engine.uses_core


def test_what_ended_the_process_before_is_counted_line_by_line(tmp_path):
    class Failed:
        """Attempts of which each has failed once."""

        def __init__(self) -> None:
            self.places = []

        def has_failed(self, key):
            return True

        def attempt(self, key):
            return core(on=True)

        def at(self, place):
            self.places.append(place)

    with core(on=True):
        attempts = Failed()
        state = ServerState(settings(tmp_path), attempts=attempts)
        entries = [plain(n) for n in range(40)]
        state.apply(1, NOON, BatchCounts(), entries, lines=b"".join(map(encode_entry, entries)))
    assert attempts.places == list(range(40))
