"""`ragmon view`: the pages on a journal or on files are those of the server that had it, and nothing is written."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from tests.support.command_line import ragmon
from tests.support.incident import incident
from tests.support.waiting import TIMEOUT

pytestmark = pytest.mark.slow
GATE = "p/support/over_refusal_rate?span=6h"


@contextmanager
def viewing(*arguments):
    """The command in a process of its own: its address; it is ended with Ctrl-C, and must exit with 0."""
    command = [sys.executable, "-m", "ragmon", "view", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(TIMEOUT) == 0


def get(url):
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return answer.read().decode()


def without_time(page):
    """A page without the times since something, which go on."""
    return re.sub(r"[\d.]+ (s|min|h|d) ago|\d\d:\d\d:\d\d UTC", "", page)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a server that was stopped after an incident, and what its pages said before."""
    folder = tmp_path_factory.mktemp("incident")
    with incident(folder) as running:
        gate = running.get(f"/{GATE}")[1]
        return folder, running.status(), {GATE: gate, "gold": running.get("/gold")[1]}


def test_a_journal_is_shown_as_its_server_showed_it(recorded):
    folder, before, pages = recorded
    content = (folder / "state" / "journal.db").read_bytes()
    with viewing(folder / "state", "--config", folder / "ragmon.toml") as url:
        status = json.loads(get(f"{url}api/status"))
        shown = {path: get(f"{url}{path}") for path in pages}
    for part in ("gates", "books", "alarms", "gold", "captured", "verdicts"):
        assert status[part] == before[part], part
    for path, page in pages.items():
        cells = re.findall(r"<td[^<]*</td>", without_time(page))
        assert cells
        assert re.findall(r"<td[^<]*</td>", without_time(shown[path])) == cells
    assert (folder / "state" / "journal.db").read_bytes() == content


def test_trace_files_are_shown_as_they_were_at_their_newest_record(tmp_path):
    lines = [
        {"ts": 1_763_683_200 + 30 * k, "q": "what", "error": "E" if k % 4 == 0 else None, "retrieved_ids": ["d"]}
        for k in range(80)
    ]
    path = tmp_path / "traces.jsonl"
    path.write_text(
        "\n".join(json.dumps({**line, "answer_json": {"claim": "x", "citations": ["d"]}}) for line in lines)
    )
    with viewing(path) as url:
        status = json.loads(get(f"{url}api/status"))
        page = get(f"{url}p/default/error_rate")
    (gate,) = [gate for gate in status["gates"] if gate["gate"] == "error_rate"]
    assert gate["value"] == 0.25
    assert status["books"]["score"]["scored"] == 80
    assert "2025-11-21" in page


@pytest.mark.parametrize(
    ("content", "error"), [("", "there is no record in it"), ("{}\nno json\n", "no record could be read")]
)
def test_what_cannot_be_shown_is_said(tmp_path, content, error):
    path = tmp_path / "traces.jsonl"
    path.write_text(content)
    done = ragmon("view", path)
    assert done.code == 3
    assert error in done.err


def test_an_empty_folder_is_no_journal(tmp_path):
    done = ragmon("view", tmp_path)
    assert done.code == 3
    assert "there is no journal" in done.err
