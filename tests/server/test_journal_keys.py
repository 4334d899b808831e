"""Keys of records: each is taken once, however many come, whatever is in memory and whatever was undone."""

from __future__ import annotations

import sqlite3

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from ragmon.server import journal as keys
from ragmon.server.journal import Journal, Keys
from ragmon.server.store import TABLES


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    yield made
    made.close()


def claim(journal, wanted):
    with journal.begin() as batch:
        return batch.claim(wanted)


def test_a_key_is_taken_once(journal):
    assert claim(journal, [(1, b"a"), (1, b"b"), (2, b"a")]) == set()
    assert claim(journal, [(1, b"c"), (1, b"b"), (2, b"a"), (2, b"b")]) == {1, 2}
    assert claim(journal, []) == set()


def test_a_key_that_stands_twice_in_a_list_is_taken_at_its_first_place(journal):
    assert claim(journal, [(1, b"a"), (1, b"a"), (1, b"b"), (1, b"a")]) == {1, 3}


def test_keys_of_one_transaction_know_of_each_other(journal):
    with journal.begin() as batch:
        assert batch.claim([(1, b"a")]) == set()
        assert batch.claim([(1, b"a"), (1, b"b")]) == {0}


def test_keys_are_known_after_the_journal_is_opened_again(journal, tmp_path):
    claim(journal, [(1, b"a")])
    journal.close()
    journal = Journal(tmp_path)
    assert claim(journal, [(1, b"a"), (1, b"b")]) == {0}
    journal.close()


def test_ids_of_different_lengths_do_not_run_into_each_other(journal):
    assert claim(journal, [(1, b"\x02a"), (1, b"\x02"), (1, b""), (0x01_02, b"a"), (0, b"\x01\x02a")]) == set()


def test_memory_is_bounded_and_what_left_it_is_still_known(journal, tmp_path, monkeypatch):
    monkeypatch.setattr(keys, "_MERGED_AT_ONCE", 100)
    journal._keys = Keys(journal._connection, fresh=400)
    for n in range(100):
        assert claim(journal, [(n, b"%d" % m) for m in range(50)]) == set()
        assert len(journal._keys._growing) + len(journal._keys._merging) <= 3 * 400
    (in_table,) = journal._connection.execute("SELECT count(*) FROM keys").fetchone()
    assert in_table > 100 * 50 - 3 * 400
    assert all(claim(journal, [(n, b"%d" % m) for m in range(50)]) == set(range(50)) for n in range(100))


def test_keys_of_steps_that_are_over_are_deleted_some_at_a_time(journal, monkeypatch):
    monkeypatch.setattr(keys, "_DELETED_AT_ONCE", 10)
    journal._keys = Keys(journal._connection, fresh=1)
    for step in range(6):
        claim(journal, [(step, b"%d" % m) for m in range(7)])
    claim(journal, [(9, b"last")])
    found = []
    for _ in range(5):
        with journal._transaction():
            found.append(journal._keys.expire(4))
    assert found == [True, True, True, False, False]
    left = {int.from_bytes(key[:5], "big") for (key,) in journal._connection.execute("SELECT key FROM keys")}
    assert left == {4, 5}


class Model(RuleBasedStateMachine):
    """Against a plain set: claims in transactions that are kept or undone, and a journal that is opened again."""

    @initialize(fresh=st.integers(1, 30), at_once=st.integers(1, 20))
    def begin(self, fresh, at_once):
        self.before = keys._MERGED_AT_ONCE
        keys._MERGED_AT_ONCE = at_once
        self.fresh = fresh
        self.connection = sqlite3.connect(":memory:", isolation_level=None)
        self.connection.executescript(TABLES)
        self.keys = Keys(self.connection, fresh)
        self.known = set()

    @rule(
        claims=st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20).map(lambda n: b"%d" % n)))),
        kept=st.booleans(),
    )
    def transaction(self, claims, kept):
        self.connection.execute("BEGIN")
        known = set(self.known)
        for wanted in claims:
            expected = set()
            for place, key in enumerate(wanted):
                if key in known:
                    expected.add(place)
                known.add(key)
            assert self.keys.claim(wanted) == expected
        if kept:
            self.connection.execute("COMMIT")
            self.keys.committed()
            self.known = known
        else:
            self.connection.execute("ROLLBACK")
            self.keys.rolled_back()

    @rule()
    def open_again(self):
        self.keys = Keys(self.connection, self.fresh)

    def teardown(self):
        if hasattr(self, "connection"):
            self.connection.close()
            keys._MERGED_AT_ONCE = self.before


TestAgainstASet = Model.TestCase
TestAgainstASet.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
