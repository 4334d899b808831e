"""What raters said of a trace that is forgotten is in no file any more, nor in the next saved state."""

from __future__ import annotations

import zlib

import msgspec
import pytest

from ragmon.ingest.receiver import Encoding
from ragmon.server.erasure import erase
from ragmon.server.pending import decode_labels, decode_traces
from ragmon.server.state import SavedServerState
from tests.cli.test_verify import database
from tests.server.test_serve_labels import label, trace
from tests.support.command_line import ragmon
from tests.support.manual_writer import ManualWriter
from tests.support.serving import asked, whole

SECRETS = ("rater-whom-nobody-may-know", "document-that-tells-all")
KNOWN, WAITS, OTHER = 0, 1, 2


def said(number, rater=SECRETS[0], document=SECRETS[1]):
    return label(number, rater=rater, relevant_ids=[document])


def states(folder):
    """The saved states of a journal, as they were before they were compressed."""
    with database(folder) as connection:
        return [zlib.decompress(data) for (data,) in connection.execute("SELECT data FROM checkpoints")]


def held(folder):
    """The secrets that are in the state folder: as they stand in a file, or compressed in one."""
    files = [path.read_bytes() for path in (folder / "state").iterdir()]
    packed = [data[at:] for data in files for at in range(len(data)) if data[at : at + 2] == b"x\x01"]
    return {
        secret
        for secret in SECRETS
        for data in (*files, *map(unpacked, packed), *states(folder))
        if secret.encode() in data
    }


def unpacked(data):
    """As much as can be made of bytes that may have been compressed."""
    try:
        return zlib.decompressobj().decompress(data)
    except zlib.error:
        return b""


@pytest.fixture
def manual(tmp_path):
    """A server that holds labels on an answer, and some that wait for theirs, in memory and in a saved state."""
    with ManualWriter(tmp_path) as made:
        tags = [{"user": "17"}, {"user": "17"}, {"user": "18"}]
        made.take(decode_traces(whole([asked(n, tags=tags[n]) for n in (KNOWN, OTHER)]), Encoding.PROTOBUF))
        made.take(decode_labels([said(KNOWN), said(WAITS), label(OTHER), label(OTHER + 1)]))
        made.save()
        yield made


def test_a_saved_state_loses_the_words_and_the_next_one_has_none(manual, tmp_path):
    assert held(tmp_path) == set(SECRETS)
    for number in (KNOWN, WAITS):
        assert manual.forget(trace(number)).states == 1
    assert held(tmp_path) == set()
    manual.take(decode_labels([label(OTHER, rater="bob")]))
    manual.save()
    assert held(tmp_path) == set()
    manual.again()
    book = manual.server_state.engine.labels.store
    assert (book.pending, book.results) == (1, {"joined": 3, "orphan": 1})


def test_a_server_that_saves_before_it_writes_again_saves_nothing_of_it(manual, tmp_path):
    """Its newest row is newer than the saved state; what it holds in memory is what it saves."""
    manual.take(decode_labels([label(OTHER, rater="bob")]))
    manual.forget(trace(KNOWN))
    manual.forget(trace(WAITS))
    manual.save()
    assert len(states(tmp_path)) == 2
    assert held(tmp_path) == set()


def test_a_tag_takes_the_words_on_the_answers_that_have_it(manual, tmp_path):
    assert erase(tmp_path / "state", tag=("user", "18")).states == 1
    assert held(tmp_path) == set(SECRETS)
    assert erase(tmp_path / "state", tag=("user", "17")).states == 1
    erase(tmp_path / "state", trace=trace(WAITS))
    assert held(tmp_path) == set()


def test_a_trace_that_comes_after_its_labels_were_forgotten_is_not_labelled(manual):
    manual.forget(trace(WAITS))
    manual.take(decode_traces(whole([asked(WAITS)]), Encoding.PROTOBUF))
    assert manual.server_state.engine.labels.store.results == {"joined": 2, "orphan": 1}


def test_what_else_a_saved_state_holds_stays(manual, tmp_path):
    decode = msgspec.msgpack.Decoder(SavedServerState).decode
    (before,) = map(decode, states(tmp_path))
    manual.forget(trace(OTHER + 1))
    (after,) = map(decode, states(tmp_path))
    assert after.engine.labels != before.engine.labels
    after.engine.labels = before.engine.labels
    assert after == before


def test_a_saved_state_that_cannot_be_read_is_deleted_since_it_may_hold_it(manual, tmp_path):
    with database(tmp_path) as connection, connection:
        connection.execute("UPDATE checkpoints SET data = ?", (zlib.compress(SECRETS[0].encode()),))
    manual.forget(trace(KNOWN))
    assert states(tmp_path) == []


@pytest.mark.slow
def test_it_is_said_where_only_a_saved_state_held_it(manual, tmp_path):
    """The row had its time."""
    with database(tmp_path) as connection, connection:
        connection.execute("DELETE FROM rows")
    done = ragmon("forget", "--state-dir", tmp_path / "state", "--trace", trace(KNOWN))
    assert done.out.startswith("forgotten: what saved states held of labels\n")
