"""State is for the server's user alone, whatever the umask, and a folder that others may read is refused."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from ragmon.core import errors
from ragmon.core.errors import RagmonError
from ragmon.server.journal import Journal
from tests.support.command_line import ragmon


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.fixture
def said(monkeypatch):
    """What was warned of, in a process that has warned of nothing before."""
    messages: set[str] = set()
    monkeypatch.setattr(errors, "_said", messages)
    return messages


@pytest.fixture
def umask():
    """Sets the umask of the process for the time of a test."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
def test_folders_and_files_of_state_are_the_owners_whatever_the_umask(tmp_path, umask, said, mask):
    umask(mask)
    folder = tmp_path / "var" / "lib" / "state"
    journal = Journal(folder)
    with journal.begin():
        pass
    files = [path for path in folder.iterdir() if path.is_file()]
    assert {path.name for path in files} >= {"journal.db", "journal.lock", "journal.attempts"}
    assert {mode(path) for path in files} == {0o600}
    assert {mode(path) for path in (folder, folder.parent, folder.parent.parent)} == {0o700}
    assert not said
    journal.close()


@pytest.mark.parametrize("rights", [0o755, 0o777, 0o704, 0o702, 0o774, 0o706])
def test_a_folder_that_others_may_read_or_change_is_refused_until_the_hint_was_followed(tmp_path, rights):
    folder = tmp_path / "a state"
    folder.mkdir()
    folder.chmod(rights)
    with pytest.raises(RagmonError, match="every user may read or change") as caught:
        Journal(folder)
    assert str(folder) in str(caught.value)
    assert list(folder.iterdir()) == []
    subprocess.run(shlex.split(caught.value.hint), check=True)
    Journal(folder).close()
    assert mode(folder) == rights & 0o770


@pytest.mark.parametrize("rights", [0o770, 0o750, 0o2770, 0o720])
def test_a_folder_that_its_group_may_use_is_worth_a_warning(tmp_path, said, rights):
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(rights)
    Journal(folder).close()
    (message,) = said
    assert message.startswith(f"{folder}: its group may")


@pytest.mark.parametrize("rights", [0o700, 0o711])
def test_a_folder_that_shows_nothing_to_anybody_else_is_taken(tmp_path, said, rights):
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(rights)
    Journal(folder).close()
    assert not said


def test_a_temporary_folder_of_all_users_stays_one_and_the_hint_is_a_folder_in_it(tmp_path):
    folder = tmp_path / "like-tmp"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(RagmonError) as caught:
        Journal(folder)
    assert "chmod" not in caught.value.hint
    Journal(Path(caught.value.hint.rpartition(": ")[2])).close()


def test_serve_refuses_it_with_the_command_that_mends_it(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o755)
    ports = 'otlp = "127.0.0.1:0"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
    (tmp_path / "ragmon.toml").write_text(f'[serve]\n{ports}state_dir = "state"\n', encoding="utf-8")
    wrong, hint = ragmon("serve", cwd=tmp_path).error
    assert "every user may read or change the state in it (drwxr-xr-x)" in wrong
    assert hint == "chmod o-rwx state"
