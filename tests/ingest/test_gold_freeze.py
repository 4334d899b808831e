"""`ragmon gold freeze`: what was approved is written down, and nothing else is taken for it from then on."""

from __future__ import annotations

import hashlib
import hmac
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragmon.config.load import load
from ragmon.core.errors import GoldError, RagmonError
from ragmon.core.gold_item import GoldItem
from ragmon.ingest.gold import GoldSet, check, diff, freeze, load_gold, read_frozen
from ragmon.monitor.capture_settings import Redactions
from ragmon.monitor.embedded import Monitor
from tests.support.command_line import gold, lines, ragmon, traces
from tests.support.serving import serving

KEY = b"a key of more than sixteen bytes"


@pytest.fixture
def folder(tmp_path):
    """Gold, traces, a key, and a configuration that wants the gold frozen."""
    lines(tmp_path / "gold.jsonl", gold())
    lines(tmp_path / "traces.jsonl", traces())
    (tmp_path / "gold.key").write_bytes(KEY)
    configure(tmp_path)
    return tmp_path


def configure(folder, keyed="key_file = 'gold.key'\n"):
    text = f"[gold.support]\npath = 'gold.jsonl'\ntags = {{ lang = 'de' }}\nfrozen = 'gold.frozen.json'\n{keyed}"
    (folder / "ragmon.toml").write_text(text)


def frozen(folder, *options):
    done = ragmon("gold", "freeze", "gold.jsonl", "-o", "gold.frozen.json", *options, cwd=folder)
    assert done.code == 0, done.err
    return json.loads((folder / "gold.frozen.json").read_text()), done.err


def reword(folder, qid="a1"):
    """Change one question of the gold file."""
    rows = [row | {"question": "Reworded?"} if row["qid"] == qid else row for row in gold()]
    lines(folder / "gold.jsonl", rows)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_file_holds_fingerprints_and_a_signature_anybody_with_the_key_can_check(folder):
    file, said = frozen(folder, "--key-file", "gold.key")
    assert (file["kind"], file["v"], file["name"], file["items"]) == ("ragmon-gold", 1, "gold", 60)
    assert list(file["fingerprints"]) == sorted(row["qid"] for row in gold())
    together = "".join(file["fingerprints"][qid] for qid in sorted(file["fingerprints"]))
    assert file["version"] == hashlib.sha256(together.encode()).hexdigest()
    signature = file.pop("signature")
    canonical = json.dumps(file, sort_keys=True, separators=(",", ":")).encode()
    assert signature == hmac.new(KEY, canonical, hashlib.sha256).hexdigest()
    assert said == f"version {file['version'][:8]} of 60 items, signed with HMAC-SHA256\n"


@pytest.mark.slow
def test_it_holds_no_text_of_the_set(folder):
    frozen(folder)
    text = (folder / "gold.frozen.json").read_text()
    assert not re.search("What is|right|Who is", text)


@pytest.mark.slow
def test_freezing_again_writes_the_same_bytes(folder):
    frozen(folder)
    before = (folder / "gold.frozen.json").read_bytes()
    lines(folder / "gold.jsonl", reversed(list(gold())))
    frozen(folder)
    assert (folder / "gold.frozen.json").read_bytes() == before


@pytest.mark.slow
def test_without_a_key_it_says_that_a_digest_is_no_proof(folder):
    file, said = frozen(folder)
    assert file["signed"] == "sha256"
    assert "not signed: a digest without a key only detects accidental changes" in said


@pytest.mark.slow
def test_check_lists_what_differs_and_writes_nothing(folder):
    frozen(folder, "--key-file", "gold.key")
    same = ragmon("gold", "freeze", "gold.jsonl", "--check", "gold.frozen.json", "--key-file", "gold.key", cwd=folder)
    assert (same.code, same.out.split(":")[0]) == (0, "0 added, 0 removed, 0 changed, 60 unchanged")
    reword(folder)
    other = ragmon("gold", "freeze", "gold.jsonl", "--check", "gold.frozen.json", "--key-file", "gold.key", cwd=folder)
    assert other.code == 1
    assert other.out.splitlines()[0] == "changed: a1"


@pytest.mark.slow
def test_diff_takes_what_was_frozen_for_either_version(folder):
    frozen(folder)
    reword(folder)
    forth = ragmon("gold", "diff", "gold.frozen.json", "gold.jsonl", cwd=folder)
    back = ragmon("gold", "diff", "gold.jsonl", "gold.frozen.json", cwd=folder)
    assert (forth.code, back.code) == (1, 1)
    assert forth.out.splitlines()[0] == back.out.splitlines()[0] == "changed: a1"


ITEMS = st.lists(
    st.builds(
        GoldItem,
        qid=st.text("abcdef", min_size=1, max_size=2),
        question=st.text("what is it?é", max_size=8),
        answerable=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda item: item.qid,
).map(tuple)


@given(ITEMS, ITEMS)
def test_against_a_frozen_set_diff_names_the_same_items_as_against_the_set(tmp_path_factory, before, after):
    old, new = GoldSet("old", before), GoldSet("new", after)
    path = tmp_path_factory.mktemp("frozen") / "gold.frozen.json"
    path.write_text(json.dumps(freeze(old, KEY)))
    was = read_frozen(path, KEY)
    plain, found = diff(old, new), diff(was, new)
    assert (set(found.added), set(found.removed), found.unchanged) == (
        set(plain.added),
        set(plain.removed),
        plain.unchanged,
    )
    assert {change.qid for change in found.changed} == {change.qid for change in plain.changed}
    if plain.same:
        check(new, was, at="gold.jsonl", file=str(path))
    else:
        with pytest.raises(GoldError, match="differs from"):
            check(new, was, at="gold.jsonl", file=str(path))


# --- verified wherever the configuration's gold is loaded -------------------------------------------------------------


@pytest.mark.slow
def test_a_set_that_is_what_was_frozen_is_taken_with_the_configurations_tags(folder):
    frozen(folder, "--key-file", "gold.key")
    (found,) = load_gold(load(folder / "ragmon.toml", environ={}).gold)
    assert (len(found), found.items[0].tags) == (60, {"lang": "de"})


@pytest.mark.slow
@pytest.mark.parametrize("make", [Monitor, Redactions], ids=["monitor", "capture"])
def test_a_set_that_differs_is_refused_in_the_application(folder, make):
    frozen(folder, "--key-file", "gold.key")
    reword(folder)
    with pytest.raises(GoldError, match="changed 'a1'"):
        make(load(folder / "ragmon.toml", environ={}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("replay", "traces.jsonl"),
        ("gate", "traces.jsonl"),
        ("gate", "traces.jsonl", "--gold", "gold.jsonl"),
        ("serve",),
    ],
    ids=" ".join,
)
def test_a_set_that_differs_is_refused_whole_and_the_items_are_named(folder, command):
    frozen(folder, "--key-file", "gold.key")
    rows = [row for row in gold() if row["qid"] not in ("u0", "u1")]
    rows[3]["answerable"] = False
    lines(folder / "gold.jsonl", [*rows, *({**rows[0], "qid": f"new{n}"} for n in range(7))])
    said, hint = ragmon(*command, cwd=folder).error
    assert said == (
        "gold.jsonl: differs from gold.frozen.json: added 'new0', 'new1', 'new2', 'new3', 'new4' and 2 more; "
        "removed 'u0', 'u1'; changed 'a3'"
    )
    assert "`ragmon gold freeze gold.jsonl --output gold.frozen.json --key-file KEY`" in hint


def test_the_gold_capture_uses_is_verified_where_it_is_a_configured_set(folder):
    frozen(folder, "--key-file", "gold.key")
    with (folder / "ragmon.toml").open("a") as file:
        file.write("[capture]\ngold = 'gold.jsonl'\n")
    settings = load(folder / "ragmon.toml", environ={})
    assert Redactions(settings).failed == 0
    reword(folder)
    with pytest.raises(GoldError, match="changed 'a1'"):
        Redactions(settings)


def _resign(file):
    body = {name: value for name, value in file.items() if name != "signature"}
    canonical = json.dumps({**body, "signed": "sha256"}, sort_keys=True, separators=(",", ":")).encode()
    return {**body, "signed": "sha256", "signature": hashlib.sha256(canonical).hexdigest()}


FORGED = {
    "a fingerprint": (lambda file: file | {"fingerprints": file["fingerprints"] | {"a1": "0" * 64}}, "was changed"),
    "the version": (lambda file: file | {"version": "0" * 64}, "was changed"),
    "no signature": (lambda file: {k: v for k, v in file.items() if k != "signature"}, "was changed"),
    "a plain digest in its place": (_resign, "is not signed, and there is a key"),
    "another kind": (lambda file: file | {"kind": "ragmon-baseline"}, "this is not a frozen gold set"),
    "a list": (lambda file: [file], "this is not a frozen gold set"),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", FORGED)
def test_a_frozen_file_that_was_tampered_with_is_refused(folder, what):
    file, _ = frozen(folder, "--key-file", "gold.key")
    forge, said = FORGED[what]
    (folder / "gold.frozen.json").write_text(json.dumps(forge(file)))
    with pytest.raises(GoldError, match=said):
        load_gold(load(folder / "ragmon.toml", environ={}).gold)


def test_a_signed_file_needs_its_key_and_the_right_one(folder):
    frozen(folder, "--key-file", "gold.key")
    with pytest.raises(GoldError, match="no key"):
        read_frozen(folder / "gold.frozen.json")
    with pytest.raises(GoldError, match="signed with another key"):
        read_frozen(folder / "gold.frozen.json", b"sixteen other bytes")
    (folder / "gold.key").write_bytes(b"short")
    with pytest.raises(RagmonError, match="the key is too short: 5 bytes"):
        load_gold(load(folder / "ragmon.toml", environ={}).gold)
    (folder / "gold.key").unlink()
    with pytest.raises(RagmonError, match="the key cannot be read"):
        load_gold(load(folder / "ragmon.toml", environ={}).gold)


def test_a_missing_or_broken_frozen_file_is_refused(folder):
    configure(folder, keyed="")
    with pytest.raises(GoldError, match="cannot be read"):
        load_gold(load(folder / "ragmon.toml", environ={}).gold)
    (folder / "gold.frozen.json").write_text("{")
    with pytest.raises(GoldError, match="is not JSON"):
        load_gold(load(folder / "ragmon.toml", environ={}).gold)


@pytest.mark.slow
def test_a_running_server_keeps_the_old_set_until_the_new_one_is_frozen_too(tmp_path):
    lines(tmp_path / "gold.jsonl", gold())
    frozen(tmp_path)
    with serving(tmp_path, "[gold.support]\npath = 'gold.jsonl'\nfrozen = 'gold.frozen.json'\n") as running:
        look, items = running.server.reloading.poll, 'ragmon_gold_items{gold="support"}'
        lines(tmp_path / "gold.jsonl", gold(answerable=50))
        assert [look() for _ in range(3)] == [False, True, False]
        metrics = running.metrics()
        assert (metrics["ragmon_config_last_reload_successful"], metrics[items]) == (0, 60)
        frozen(tmp_path)
        assert [look() for _ in range(3)] == [False, True, False]
        metrics = running.metrics()
        assert (metrics["ragmon_config_last_reload_successful"], metrics[items]) == (1, 70)
