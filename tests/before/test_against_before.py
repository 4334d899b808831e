"""What compares today's version with the yardstick finds what differs, and is silent where it is accepted."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.support import against_before, before
from tests.support.against_before import main

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not before.BEFORE.exists(), reason="there is no yardstick: `make before` installs it"),
]
SAID, FAULT = "is not a known key", "is an unknown key"
"""What `config check` says, and what the version with a fault says in its place."""
CASES = ("600", "--family", "configs", "--family", "rules", "--seed", "1", "--cases", "8")


@pytest.fixture
def accepted(tmp_path, monkeypatch):
    """Writes what is accepted beside what really is: patterns of places."""
    really = (before.GOLDEN / "accepted.toml").read_text("utf-8")

    def write(*patterns):
        entries = (f"[[accepted]]\nwhere = '{pattern}'\nreason = 'a test'\n" for pattern in patterns)
        (tmp_path / "accepted.toml").write_text("\n".join((really, *entries)), "utf-8")
        before.accepted.cache_clear()

    monkeypatch.setattr(before, "GOLDEN", tmp_path)
    monkeypatch.setattr(against_before, "THINNING", 1.0)
    yield write
    before.accepted.cache_clear()


@pytest.fixture
def faulty(tmp_path):
    """A copy of today's version with one text changed."""
    copy = tmp_path / "faulty"
    shutil.copytree(before.ROOT / "ragmon", copy / "ragmon", ignore=shutil.ignore_patterns("__pycache__", "target"))
    changed = [path for path in copy.rglob("*.py") if SAID in path.read_text("utf-8")]
    for path in changed:
        path.write_text(path.read_text("utf-8").replace(SAID, FAULT), "utf-8")
    assert changed
    return copy


def differing(text):
    """The summary's number of leaves that differ and of those that are accepted."""
    return tuple(int(re.search(rf"(\d+) {what}", text)[1]) for what in ("differing leaves", "accepted ones"))


def test_finds_a_planted_difference_and_says_how_to_see_it_again(faulty, accepted, capfd):
    accepted()
    assert main([*CASES, "--now", str(faulty)]) == 1
    printed = capfd.readouterr().out
    assert differing(printed)[0] > 0
    assert "configs/check:" in printed
    assert FAULT in printed
    assert "rules/" not in printed.partition(" cases in ")[0]
    again = re.search(r"--family configs --seed (\d+) --cases 1", printed)[0].split()
    assert main(["600", *again, "--now", str(faulty)]) == 1
    assert differing(capfd.readouterr().out)[0] > 0


def test_an_accepted_entry_silences_its_own_leaves_alone(faulty, accepted, capfd):
    counted = []
    for patterns in ((), (f"*{FAULT}*",), (f"*{FAULT}*", f"*{SAID}*")):
        accepted(*patterns)
        code = main([*CASES[:3], *CASES[5:], "--now", str(faulty)])
        counted.append((code, *differing(capfd.readouterr().out)))
    (_, every, really), (_, half, silenced), (_, none, all_silenced) = counted
    assert [code for code, *_ in counted] == [1, 1, 0]
    assert 0 < half < every
    assert (half + silenced, none, all_silenced) == (every + really, 0, every + really)
