"""A saved state is a shortcut: whoever goes on from it comes to what was counted without it."""

from __future__ import annotations

import logging
import re
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.baselines import Baseline
from ragmon.alarms.detector import Detector
from ragmon.config.load import load
from ragmon.core.errors import RateLimitedLog
from ragmon.server import state as recovery
from ragmon.server.state import ServerState
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
    """What is written in the middle of the traffic."""
    return fed(ServerState(settings), entries[:SAVED_AFTER]).dump()


@pytest.mark.slow
def test_it_goes_on_as_if_nothing_had_happened(settings, checkpoint, entries):
    uninterrupted = account(fed(ServerState(settings), entries))
    assert account(fed(restored(settings, checkpoint), entries[SAVED_AFTER:])) == uninterrupted
    assert uninterrupted["labels"]["joined"] > 0 < uninterrupted["waiting"]


@pytest.mark.slow
def test_what_is_written_does_not_depend_on_whether_it_was_read_before(settings, checkpoint):
    assert restored(settings, checkpoint).dump() == checkpoint


@pytest.mark.parametrize("part", ["v", "facts", "digest"])
def test_a_state_of_another_version_is_passed_over_and_its_rows_are_counted(tmp_path, caplog, monkeypatch, part):
    monkeypatch.setattr(recovery, "log_error", RateLimitedLog())  # another test may just have logged the same
    with ManualWriter(tmp_path) as hand, caplog.at_level(logging.ERROR):
        hand.send(whole([asked(n, ts=hand.time.now) for n in range(2)]))
        hand.save()
        with database(tmp_path) as connection, connection:
            (data,) = connection.execute("SELECT data FROM checkpoints").fetchone()
            state = msgspec.msgpack.decode(zlib.decompress(data))
            state["version"][part] += 1
            state["engine"]["scorer"]["scored"] = 77
            data = zlib.compress(msgspec.msgpack.encode(state))
            connection.execute("UPDATE checkpoints SET data = ?", (data,))
        hand.again()
        assert (hand.books.scored, hand.agrees()) == (2, True)
    assert "a checkpoint cannot be read and is skipped" in caplog.text


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_comes_back_to_the_last_bit(values):
    assert [value.hex() for value in saved(Detector(values)).wealth] == [value.hex() for value in values]
    assert saved(Baseline(total=values[0])).total.hex() == values[0].hex()


DAMAGE = {
    "another type": (lambda state: state.update(seq="12"), "Expected `int`, got `str` - at `$.seq`"),
    "a missing part": (lambda state: state["engine"].pop("alarms"), "missing required field `alarms` - at `$.engine`"),
    "a type deep inside": (
        lambda state: state["engine"]["labels"]["results"].update(joined=None),
        "Expected `int`, got `None` - at `$.engine.labels.results[...]`",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(settings, checkpoint, damage):
    change, message = DAMAGE[damage]
    state = msgspec.msgpack.decode(checkpoint)
    change(state)
    with pytest.raises(ValueError, match=re.escape(message)):
        restored(settings, msgspec.msgpack.encode(state))


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x80", b"\x90", b"\x81\xa7version\x01", b"\xff", msgspec.json.encode({"v": 1})]
)
def test_what_is_no_checkpoint_is_refused(settings, data):
    with pytest.raises(ValueError):
        restored(settings, data)
