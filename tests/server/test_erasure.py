"""`ragmon forget`: what somebody asks to be forgotten is in no file any more, beside a running server too."""

from __future__ import annotations

import json
import re
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

from ragmon.cli.commands import forget
from ragmon.core.record import Label
from ragmon.server import erasure
from ragmon.server.journal import Journal
from ragmon.stream.assembler import AssemblyLimits
from tests.cli.test_verify import database
from tests.server.test_serve import request, send
from tests.server.test_serve_spans import fresh, message
from tests.support.command_line import ragmon
from tests.support.recorded_spans import recorded
from tests.support.serving import configuration, journalled, post, serving
from tests.support.waiting import wait_for

SECRET = "the-lady-with-the-dog"
FULL = '[capture]\ncontent = "full"\n'
PATIENT = AssemblyLimits(idle=300.0, rootless=300.0, age=600.0)
STAYS = "kept: counts, which hold no text; keys and ids of traces, until they expire\n"


def ids(folder):
    return [record.trace_id for record in journalled(folder)]


def on_disk(folder):
    """The files of a state folder that hold the secret."""
    return [path.name for path in (folder / "state").iterdir() if SECRET.encode() in path.read_bytes()]


def command(folder, *options):
    return ragmon("forget", "--state-dir", folder / "state", *options)


def asked(n, **fields):
    """The nth request, with the secret as its question where it is asked for."""
    return request(n, **{"q": f"question {n}", **fields})


@pytest.mark.slow
def test_a_trace_is_taken_out_beside_a_running_server(tmp_path):
    with serving(tmp_path, FULL) as running:
        send(running, [asked(n, **({"q": SECRET} if n == 3 else {})) for n in range(6)])
        running.settled(6)
        assert on_disk(tmp_path)
        done = command(tmp_path, "--trace", f"{4:032x}")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"forgotten: 1 record, 0 labels, 0 waiting spans\n{STAYS}"
        assert on_disk(tmp_path) == []
        send(running, [asked(6)])
        books = running.settled(7)
        assert (books["scored"], books["residual"]) == (7, 0)
    assert ids(tmp_path) == [f"{n + 1:032x}" for n in (0, 1, 2, 4, 5, 6)]


@pytest.mark.slow
def test_upper_case_is_the_same_trace(tmp_path):
    with serving(tmp_path) as running:
        send(running, [asked(0, trace_id="ab" * 16)])
        running.settled(1)
    assert command(tmp_path, "--trace", "AB" * 16).out.startswith("forgotten: 1 record,")
    assert ids(tmp_path) == []


@pytest.mark.slow
def test_a_tag_takes_its_records_and_the_labels_of_their_traces(tmp_path):
    with serving(tmp_path, FULL) as running:
        send(running, [asked(n, tags={"customer": f"{n % 2}=x"}) for n in range(6)])
        labels = [{"trace_id": f"{n + 1:032x}", "correct": True, "rater": "mo", "ts": time.time()} for n in range(2)]
        assert post(f"{running.otlp}/v1/labels", labels)[0] == 200
        running.settled(6)
        done = command(tmp_path, "--tag", "customer=1=x")
    assert done.out == f"forgotten: 3 records, 1 label, 0 waiting spans\n{STAYS}"
    assert ids(tmp_path) == [f"{n + 1:032x}" for n in (0, 2, 4)]
    assert [label.trace_id for label in journalled(tmp_path, Label)] == [f"{1:032x}"]


@pytest.mark.slow
def test_spans_that_wait_are_taken_out(tmp_path, data):
    spans = fresh(recorded(data / "spans" / "oi_langchain.json")[-1])
    with serving(tmp_path, assembly_limits=PATIENT) as running:
        assert post(f"{running.otlp}/v1/traces", message(spans), "application/x-protobuf")[0] == 200
    done = command(tmp_path, "--trace", spans[0].trace_id)
    assert f"forgotten: 0 records, 0 labels, {len(spans)} waiting spans\n" in done.out
    with database(tmp_path) as connection:
        assert connection.execute("SELECT count(*) FROM bodies").fetchone() == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--trace", "ef" * 16], ["--tag", "customer=nobody"]])
def test_where_nothing_is_found_that_is_said_and_is_no_failure(tmp_path, options):
    with serving(tmp_path) as running:
        send(running, [asked(0)])
        running.settled(1)
    done = command(tmp_path, *options)
    assert (done.code, done.out) == (0, f"nothing was found\n{STAYS}")
    assert len(ids(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "trace", ["", "abc", "g" * 32, "ab" * 15, "ab" * 17, "ab-" * 10 + "ab", "0x" + "a" * 30, " " + "a" * 31]
)
def test_what_is_no_trace_id_is_refused(tmp_path, trace):
    message, hint = command(tmp_path, "--trace", trace).error
    assert message == f"--trace is not a trace id: {trace!r}"
    assert hint == "32 hex digits, without dashes"


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["", "customer", "=42"])
def test_what_is_no_tag_is_refused(tmp_path, tag):
    message, hint = command(tmp_path, "--tag", tag).error
    assert message == f"--tag names no tag and value: {tag!r}"
    assert hint == "--tag customer=42"


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["--trace", "ab" * 16, "--tag", "a=b"]])
def test_one_thing_is_forgotten_at_a_time(tmp_path, options):
    message, hint = command(tmp_path, *options).error
    assert message == "nothing says what to delete"
    assert hint == "--trace ID, --tag NAME=VALUE or --user NAME, one of them"


@pytest.mark.slow
def test_there_must_be_a_journal_and_none_is_made(tmp_path):
    message, hint = command(tmp_path, "--trace", "ab" * 16).error
    assert message == f"there is no journal in {tmp_path / 'state'}"
    assert "state_dir" in hint
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_the_folder_is_the_configured_one(tmp_path):
    with serving(tmp_path) as running:
        send(running, [asked(0)])
        running.settled(1)
    done = ragmon("forget", "--trace", f"{1:032x}", "--config", configuration(tmp_path))
    assert done.out.startswith("forgotten: 1 record,")


@pytest.mark.slow
def test_journals_that_were_set_aside_are_named_since_they_may_hold_it(tmp_path):
    Journal(tmp_path / "state").close()
    aside = tmp_path / "state" / "journal.db.corrupt-20250101T000000Z"
    aside.write_bytes(b"?")
    done = command(tmp_path, "--trace", "ab" * 16)
    assert f"a damaged journal may still hold it; delete that file: {aside}\n" in done.out


def test_somebody_who_reads_all_the_while_keeps_the_bytes_and_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr(erasure, "_WIPED_WITHIN", 0.0)
    with closing(Journal(tmp_path / "state")) as journal:
        with journal.begin() as batch:
            batch.append(1.0, 1, b"{}", json.dumps({"v": 1, "trace_id": "ab" * 16}).encode() + b"\n")
        with database(tmp_path) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM rows").fetchall()
            options = ["--state-dir", str(tmp_path / "state"), "--trace", "ab" * 16]
            told = CliRunner().invoke(forget, options, standalone_mode=False).output
            assert "another process was reading, so the data may still be on the disk" in told
        again = CliRunner().invoke(forget, options, standalone_mode=False).output
    assert "another process was reading" not in again


@pytest.mark.slow
def test_help_says_what_stays_and_what_is_not_touched():
    told = re.sub(r"\s+", " ", ragmon("forget", "--help").out)
    assert "Counts stay: they hold no text." in told
    assert "Other copies of the data (trace logs, backups, other backends) are not touched." in told


@pytest.mark.slow
@pytest.mark.parametrize("serving_meanwhile", [True, False])
def test_a_trace_that_waits_is_forgotten_and_accounted_for(tmp_path, data, serving_meanwhile):
    """Beside a running server, which holds its spans, and while none runs: no record, and nothing is missing."""
    trace = fresh(recorded(data / "spans" / "oi_langchain.json")[-1])
    assembly_limits = AssemblyLimits(idle=6.0)
    with serving(tmp_path, assembly_limits=assembly_limits) as running:
        assert post(f"{running.otlp}/v1/traces", message(trace), "application/x-protobuf")[0] == 200
        wait_for(running.books, lambda books: books["pending"] == 1)
        if serving_meanwhile:
            command(tmp_path, "--trace", trace[0].trace_id)
            assert running.settled(1)["ignored"] == {"forgotten": 1}
    if not serving_meanwhile:
        command(tmp_path, "--trace", trace[0].trace_id)
    with serving(tmp_path, assembly_limits=assembly_limits) as running:
        books = running.settled(1)
    assert (books["scored"], books["ignored"], books["residual"]) == (0, {"forgotten": 1}, 0)
    assert journalled(tmp_path) == []
