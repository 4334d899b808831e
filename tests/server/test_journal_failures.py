"""The index of failures: any filter, newest first, page by page, in time that does not grow with what it leaves out."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from ragmon.core.constants import OTHER
from ragmon.core.errors import RagmonError
from ragmon.server import store
from ragmon.server.journal import Journal
from ragmon.server.store import Failure, FailureQuery, JournalReader


@pytest.fixture
def journal(tmp_path):
    made = Journal(tmp_path)
    yield made
    made.close()


def failure(seq, line=0, ts=None, *, scores=("answer_precision",), **told):
    """A failure with the fields nobody asks about filled in."""
    fields = {"pipeline": "shop", "source": "live", **told}
    return Failure(seq, line, float(seq) if ts is None else ts, scores=dict.fromkeys(scores, 0.0), **fields)


def write(journal, *found):
    with journal.begin() as batch:
        batch.add_failures(found)


def every(journal, query):
    """All pages of a query together; none but the last is short."""
    found, cursor = [], query.cursor
    while True:
        page = journal.failures(FailureQuery(**{**query.__dict__, "cursor": cursor}))
        found += page.failures
        if page.cursor is None:
            return found
        assert len(page.failures) == query.limit
        cursor = page.cursor


def test_a_failure_comes_back_as_it_was_written(journal, tmp_path):
    told = Failure(
        7,
        3,
        1.7e9,
        "shop",
        "match",
        {"answer_precision": 0.0, "recall@5": 0.4},
        "ab" * 16,
        "v2",
        "i9",
        {"signs": ["x"]},
    )
    bare = Failure(8, 0, 1.7e9 + 1, "shop", "live", {"errors": 1.0})
    write(journal, told, bare)
    with JournalReader(tmp_path) as reader:
        assert reader.failures(FailureQuery()).failures == [bare, told]


def test_one_that_is_written_again_is_changed_and_stands_once(journal):
    write(journal, failure(1, scores=["a"]))
    write(journal, failure(1, scores=["a", "b"]))
    assert [len(every(journal, FailureQuery(metric=metric))) for metric in (None, "a", "b")] == [1, 1, 1]


def test_a_page_begins_where_the_one_before_ended_whatever_came_meanwhile(journal):
    write(journal, *(failure(n) for n in range(1, 6)))
    page = journal.failures(FailureQuery(limit=2))
    write(journal, failure(9))
    rest = every(journal, FailureQuery(limit=2, cursor=page.cursor))
    assert [found.seq for found in (*page.failures, *rest)] == [5, 4, 3, 2, 1]


@pytest.mark.parametrize(
    "cursor", ["", "x", "e30=", "WzEsMl0=", "ä", "WzEsIDIsIDFlOTk5XQ==", "WzEsIDIsIDk5OTk5OTk5OTk5OTk5OTk5OTk5XQ=="]
)
def test_a_cursor_that_is_none_is_refused(journal, cursor):
    with pytest.raises(RagmonError, match="not a cursor") as refused:
        journal.failures(FailureQuery(cursor=cursor))
    assert "the page before" in refused.value.hint


def test_a_page_has_a_longest_length(journal, monkeypatch):
    monkeypatch.setattr(store, "MAX_PAGE", 3)
    write(journal, *(failure(n) for n in range(1, 6)))
    assert len(journal.failures(FailureQuery(limit=99)).failures) == 3
    assert len(journal.failures(FailureQuery(limit=0)).failures) == 1


def test_past_a_number_of_series_builds_and_indexes_are_held_as_others(journal, monkeypatch):
    monkeypatch.setattr(store, "SERIES", 3)
    write(journal, *(failure(n, build=f"b{n}", index_hash="i") for n in range(1, 7)))
    assert [found.build for found in every(journal, FailureQuery())] == [OTHER, OTHER, OTHER, "b3", "b2", "b1"]
    assert [found.seq for found in every(journal, FailureQuery(build=OTHER))] == [6, 5, 4]


def test_what_a_filter_leaves_out_is_not_read(journal):
    """However many failures there are of another build, the one that is wanted costs the same work."""
    work = []
    for n in (10, 10_000):
        write(journal, *(failure(seq, build="common") for seq in range(2, n)), failure(1, build="rare"))
        steps = [0]

        def count(steps=steps):
            steps[0] += 1

        journal._connection.set_progress_handler(count, 1)
        assert [
            found.seq for found in journal.failures(FailureQuery(build="rare", metric="answer_precision")).failures
        ] == [1]
        journal._connection.set_progress_handler(None, 1)
        work.append(steps[0])
    assert work[0] == work[1]


NAMES = st.sampled_from(["a", "b"])
FOUND = st.builds(
    failure,
    seq=st.integers(1, 4),
    line=st.integers(0, 3),
    ts=st.sampled_from([1.0, 2.0, 3.0, 1e9]),
    scores=st.sets(st.sampled_from(["m", "n"]), min_size=1),
    pipeline=NAMES,
    source=NAMES,
    build=st.none() | NAMES,
    index_hash=st.none() | NAMES,
)
MAYBE = st.none() | NAMES


@pytest.mark.slow
@given(
    found=st.lists(FOUND, unique_by=lambda each: (each.seq, each.line)),
    pipeline=MAYBE,
    source=MAYBE,
    build=MAYBE,
    index_hash=MAYBE,
    metric=st.none() | st.sampled_from(["m", "n"]),
    since=st.sampled_from([0.0, 2.0, 1e9]),
    limit=st.integers(1, 5),
)
@settings(max_examples=60)
def test_pages_hold_what_a_plain_search_finds_newest_first(tmp_path_factory, found, since, metric, limit, **wanted):
    journal = Journal(tmp_path_factory.mktemp("journal"))
    write(journal, *found)
    expected = [
        each
        for each in sorted(found, key=lambda each: (each.ts, each.seq, each.line), reverse=True)
        if each.ts >= since
        and (metric is None or metric in each.scores)
        and all(value is None or getattr(each, name) == value for name, value in wanted.items())
    ]
    assert every(journal, FailureQuery(**wanted, metric=metric, since=since, limit=limit)) == expected
    journal.close()
