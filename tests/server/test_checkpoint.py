"""A saved state is a shortcut: whoever goes on from it comes to what was counted without it.

`tests/data/checkpoints` holds a state of version 1, and what the ragmon that wrote it came to; `write.py` made them.
"""

from __future__ import annotations

import json
import logging
import lzma
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.alarms.baselines import BaselineState
from ragmon.alarms.detector import Detector
from ragmon.config.load import load
from ragmon.server.journal import Journal, erase
from ragmon.server.journal.schema import upgrade_checkpoint
from ragmon.server.pipeline.state import ServerState
from tests.cli.test_verify import database
from tests.support.alarming import SEVERAL, write_config
from tests.support.manual_writer import ManualWriter
from tests.support.saved import SAVED_AFTER, account, batches, saved
from tests.support.serving import asked, whole


@pytest.fixture(scope="module")
def checkpoints(request):
    return request.path.parents[1] / "data" / "checkpoints"


@pytest.fixture(scope="module")
def version_1(checkpoints):
    return lzma.decompress((checkpoints / "version-1.json.xz").read_bytes())


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """With the thresholds of the ragmon that wrote the checkpoint, which divided the budgets otherwise."""
    budgets = "".join(
        f"[pipelines.{name}.alarms]\nfalse_pages_per_30d = {0.25 * parts}\nlooks_per_day = {1.0 * parts}\n"
        for name, parts in (("support", 8), ("sales", 8), ("default", 16))
    )
    return load(write_config(tmp_path_factory.mktemp("configuration"), SEVERAL + budgets), environ={})


@pytest.fixture(scope="module")
def entries():
    return list(batches())


@pytest.fixture(scope="module")
def expected(checkpoints):
    """What the ragmon of version 1 came to, without any interruption."""
    return json.loads((checkpoints / "version-1-then.json").read_bytes())


def restored(settings, data):
    server_state = ServerState(settings)
    server_state.load(data)
    return server_state


def fed(server_state, entries):
    for seq, arrival, counts, lines in entries:
        server_state.apply(seq, arrival, counts, lines)
    return server_state


@pytest.fixture(scope="module")
def version_3(settings, entries):
    """The same state, as it is written today."""
    return fed(ServerState(settings), entries[:SAVED_AFTER]).dump()


DEFINED = {"digest", "alarms", "transitions"}
"""What depends on the definitions of the metrics, which have changed since version 1."""


@pytest.mark.slow
def test_it_goes_on_from_version_1_as_the_ragmon_that_wrote_it_went_on(settings, version_1, entries, expected):
    found = json.loads(json.dumps(account(fed(restored(settings, version_1), entries[SAVED_AFTER:]))))
    assert {key for key in expected if found[key] != expected[key]} <= DEFINED


@pytest.mark.slow
def test_it_goes_on_from_its_own_as_if_nothing_had_happened(settings, version_3, entries):
    uninterrupted = account(fed(ServerState(settings), entries))
    assert account(fed(restored(settings, version_3), entries[SAVED_AFTER:])) == uninterrupted


@pytest.mark.slow
def test_version_1_that_is_written_again_is_what_is_written_today(settings, version_1, version_3):
    """All but the facts and what follows from them; only where sources were sorted it is spelled otherwise."""
    mine = msgspec.json.decode(restored(settings, version_1).dump())
    today = msgspec.json.decode(version_3)
    assert mine["engine"]["scorer"]["windows"].pop("captured") == []  # version 1 counted nothing of that
    assert today["engine"]["scorer"]["windows"].pop("captured")
    assert mine["engine"]["scorer"]["windows"].pop("cohorts") == {}  # nor of this
    assert today["engine"]["scorer"]["windows"].pop("cohorts")
    for state in (mine, today):
        for pipeline in state["engine"]["limiter"]["pipelines"].values():
            pipeline["sources"].sort()
        state["engine"]["alarms"] = sorted(state["engine"]["alarms"]["pipelines"])
        windows = state["engine"]["scorer"]["windows"]
        windows["series"] = sorted(key for key, _ in windows["series"])
        del windows["answers"], state["engine"]["transitions"]
    assert mine == today
    assert mine["v"] == 3


def test_counts_of_other_facts_are_made_anew_from_the_rows(tmp_path):
    with ManualWriter(tmp_path) as hand:
        hand.send(whole([asked(n, ts=hand.time.now) for n in range(2)]))
        hand.save()
        with database(tmp_path) as connection, connection:
            (saved_data,) = connection.execute("SELECT data FROM checkpoints").fetchone()
            state = msgspec.json.decode(zlib.decompress(saved_data))
            assert state.pop("facts") > 1
            state["engine"]["scorer"]["scored"] = 77
            data = zlib.compress(msgspec.json.encode(state))
            connection.execute("UPDATE checkpoints SET data = ?", (data,))
        hand.again()
        assert (hand.server_state.engine.scorer.scored, hand.agrees()) == (2, True)


@pytest.mark.slow
def test_what_is_written_does_not_depend_on_whether_it_was_read_before(settings, version_3):
    assert restored(settings, version_3).dump() == version_3


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_every_float_comes_back_to_the_last_bit(values):
    assert [value.hex() for value in saved(Detector(values)).wealth] == [value.hex() for value in values]
    assert saved(BaselineState(total=values[0])).total.hex() == values[0].hex()


DAMAGE = {
    "another type": (lambda state: state.update(seq="12"), "Expected `int`, got `str` - at `$.seq`"),
    "a missing part": (lambda state: state["engine"].pop("alarms"), "missing required field `alarms` - at `$.engine`"),
    "a type deep inside": (
        lambda state: state["engine"]["alarms"]["pipelines"]["support"]["baselines"]["compliance"].update(n=None),
        "Expected `int`, got `null`",
    ),
    "facts that are none": (
        lambda state: state["engine"]["scorer"]["windows"]["series"][0][1]["past"].update(cells={"x": 1}),
        "not enough values to unpack",
    ),
    "a later version": (lambda state: state.update(v=4), "a checkpoint of version 4"),
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_noticed(settings, version_3, damage):
    change, message = DAMAGE[damage]
    state = msgspec.json.decode(version_3)
    change(state)
    with pytest.raises(ValueError, match=message.replace("$", r"\$").replace(".", r"\.")):
        restored(settings, msgspec.json.encode(state))


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"v":1}', b'{"v":1,"live":[]}', b'{"v":"2"}', b"\xff"])
def test_what_is_no_checkpoint_is_no_version_of_one(data):
    with pytest.raises(ValueError):
        upgrade_checkpoint(data)


def test_a_server_that_cannot_read_one_says_so_and_counts_the_rows(tmp_path, caplog):
    with ManualWriter(tmp_path) as hand, caplog.at_level(logging.ERROR):
        hand.send(whole([asked(n, ts=hand.time.now) for n in range(2)]))
        hand.save()
        with database(tmp_path) as connection, connection:
            connection.execute("UPDATE checkpoints SET data = ?", (zlib.compress(b'{"v":4,"engine":{}}'),))
        hand.again()
        assert (hand.books.scored, hand.agrees()) == (2, True)
    assert "a checkpoint cannot be read and is passed over" in caplog.text


def test_a_label_is_erased_from_a_state_of_version_1_which_is_version_3_then(tmp_path, data):
    rated = f"{1:032x}"
    (tmp_path / "state").mkdir(mode=0o700)
    (tmp_path / "state" / "journal.db").write_bytes(lzma.decompress((data / "journals" / "7884c22.db.xz").read_bytes()))
    Journal(tmp_path / "state").close()  # brought up to date; what is saved in it is as it was
    assert erase(tmp_path / "state", trace=rated).states == 1
    with database(tmp_path) as connection:
        (state,) = (
            msgspec.json.decode(zlib.decompress(d)) for (d,) in connection.execute("SELECT data FROM checkpoints")
        )
    assert state["v"] == 3
    assert list(state["engine"]["labels"]["answers"]) == [f"{2:032x}"]
