"""A saved state is a shortcut: whoever goes on from it comes to what was counted without it."""

from __future__ import annotations

import logging
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.baselines import BaselineState
from ragmon.alarms.detector import Detector
from ragmon.config.load import load
from ragmon.server.journal import erase
from ragmon.server.journal.schema import upgrade_checkpoint
from ragmon.server.pipeline.state import SavedServerState, ServerState
from tests.cli.test_verify import database
from tests.support.alarming import SEVERAL, write_config
from tests.support.manual_writer import ManualWriter
from tests.support.saved import SAVED_AFTER, account, batches, saved
from tests.support.serving import asked, whole


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    return load(write_config(tmp_path_factory.mktemp("configuration"), SEVERAL), environ={})


@pytest.fixture(scope="module")
def entries():
    return list(batches())


def restored(settings, data):
    server_state = ServerState(settings)
    server_state.load(data)
    return server_state


def fed(server_state, entries):
    for seq, arrival, counts, lines in entries:
        server_state.apply(seq, arrival, counts, lines)
    return server_state


@pytest.fixture(scope="module")
def checkpoint(settings, entries):
    return fed(ServerState(settings), entries[:SAVED_AFTER]).dump()


@pytest.mark.slow
def test_it_goes_on_from_its_own_as_if_nothing_had_happened(settings, checkpoint, entries):
    uninterrupted = account(fed(ServerState(settings), entries))
    assert account(fed(restored(settings, checkpoint), entries[SAVED_AFTER:])) == uninterrupted


def test_counts_of_other_facts_are_made_anew_from_the_rows(tmp_path):
    with ManualWriter(tmp_path) as hand:
        hand.send(whole([asked(n, ts=hand.time.now) for n in range(2)]))
        hand.save()
        with database(tmp_path) as connection, connection:
            (saved_data,) = connection.execute("SELECT data FROM checkpoints").fetchone()
            state = msgspec.msgpack.decode(zlib.decompress(saved_data))
            assert state.pop("facts") > 1
            state["engine"]["scorer"]["scored"] = 77
            data = zlib.compress(msgspec.msgpack.encode(state))
            connection.execute("UPDATE checkpoints SET data = ?", (data,))
        hand.again()
        assert (hand.server_state.engine.scorer.scored, hand.agrees()) == (2, True)


@pytest.mark.slow
def test_what_is_written_does_not_depend_on_whether_it_was_read_before(settings, checkpoint):
    again = restored(settings, checkpoint).dump()
    assert msgspec.msgpack.decode(again, type=SavedServerState) == msgspec.msgpack.decode(
        checkpoint, type=SavedServerState
    )


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_comes_back_to_the_last_bit(values):
    assert [value.hex() for value in saved(Detector(values)).wealth] == [value.hex() for value in values]
    assert saved(BaselineState(total=values[0])).total.hex() == values[0].hex()


DAMAGE = {
    "another type": (lambda state: state.update(seq="12"), "Expected `int`, got `str` - at `$.seq`"),
    "a missing part": (lambda state: state["engine"].pop("alarms"), "missing required field `alarms` - at `$.engine`"),
    "a type deep inside": (
        lambda state: state["engine"]["alarms"]["pipelines"]["support"]["baselines"]["compliance"].update(n=None),
        "Expected `int`, got `None`",
    ),
    "facts that are none": (
        lambda state: state["engine"]["scorer"]["windows"]["series"][0][1]["past"].update(cells={"x": 1}),
        "not enough values to unpack",
    ),
    "another version": (lambda state: state.update(v=4), "a checkpoint of version 4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(settings, checkpoint, damage):
    change, message = DAMAGE[damage]
    state = msgspec.msgpack.decode(checkpoint)
    change(state)
    with pytest.raises(ValueError, match=message.replace("$", r"\$").replace(".", r"\.")):
        restored(settings, msgspec.msgpack.encode(state))


@pytest.mark.parametrize("data", [b"", b"{}", b"\x80", msgspec.msgpack.encode({"v": "2"})])
def test_what_is_no_checkpoint_is_no_version_of_one(data):
    with pytest.raises(ValueError):
        upgrade_checkpoint(data)


def test_a_server_that_cannot_read_one_says_so_and_counts_the_rows(tmp_path, caplog):
    with ManualWriter(tmp_path) as hand, caplog.at_level(logging.ERROR):
        hand.send(whole([asked(n, ts=hand.time.now) for n in range(2)]))
        hand.save()
        with database(tmp_path) as connection, connection:
            data = zlib.compress(msgspec.msgpack.encode({"v": 4, "engine": {}}))
            connection.execute("UPDATE checkpoints SET data = ?", (data,))
        hand.again()
        assert (hand.books.scored, hand.agrees()) == (2, True)
    assert "a checkpoint cannot be read and is passed over" in caplog.text


def test_no_id_of_a_document_stays_in_a_state_once_a_trace_is_forgotten(tmp_path):
    """Nor in the server, which saves another state later."""
    gold = {"qid": "q1", "question": "What?", "answerable": True, "gold_citations": ["x"]}
    (tmp_path / "gold.jsonl").write_bytes(msgspec.json.encode(gold))
    with ManualWriter(tmp_path, '[gold.gold]\npath = "gold.jsonl"\n') as hand:
        hand.send(whole([asked(1, ts=hand.time.now, retrieved=["of-ada-17"])]))
        hand.save()
        assert b"of-ada-17" in b"".join(saved_states(tmp_path))
        assert erase(tmp_path / "state", trace=f"{2:032x}").states == 1
        assert b"of-ada-17" not in b"".join(saved_states(tmp_path))
        hand.send(whole([asked(2, ts=hand.time.now)]))
        hand.save()
        assert b"of-ada-17" not in b"".join(saved_states(tmp_path))


def saved_states(folder):
    with database(folder) as connection:
        return [zlib.decompress(data) for (data,) in connection.execute("SELECT data FROM checkpoints")]
