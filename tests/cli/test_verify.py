"""`ragmon verify`: every record is accounted for, by the server and by its journal; what is not is found and named."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import threading
import time
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from ragmon.capture.otlp_exporter import OtlpExporter
from ragmon.cli import verify as verifying
from ragmon.cli.verify import of_journal, of_server
from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.core.record import Totals
from ragmon.server.erasure import erase
from ragmon.server.journal import Journal, RetentionLimits
from ragmon.server.store import JournalRow, checksum
from ragmon.stream.assembler import AssemblyLimits
from tests.server.test_serve import RESOURCE, request, send
from tests.server.test_serve_spans import fresh, message
from tests.support.collectors import free_port
from tests.support.command_line import ragmon
from tests.support.otlp_requests import of_records
from tests.support.recorded_spans import recorded
from tests.support.serving import configuration, post, process, serving
from tests.support.waiting import TIMEOUT

SECRET = "the-lady-with-the-dog"
FULL = '[capture]\ncontent = "full"\n'


def save(running):
    """Have a running server write a checkpoint."""
    writer = running.server.writer
    writer.run_between_rows(writer._save).result(TIMEOUT)


def rows(running, count, each=30, first=0):
    """Send so many rows of records."""
    for n in range(first, first + count):
        send(running, [request(n * each + k, pipeline="support", q=SECRET) for k in range(each)])
        running.settled((n - first + 1) * each)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of a server that was stopped: twelve rows, and checkpoints at the rows 6 and 12."""
    folder = tmp_path_factory.mktemp("made")
    with serving(folder, FULL) as running:
        rows(running, 6)
        save(running)
        writer = running.server.writer
        for n in range(6, 12):
            send(running, [request(n * 30 + k, q=SECRET) for k in range(30)])
            running.settled((n + 1) * 30)
        assert writer.server_state.seq == 12
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy of it, to be spoilt."""
    return shutil.copytree(made, tmp_path / "copy")


def verify(folder, *options):
    return ragmon("verify", "--state-dir", folder / "state", "--config", folder / "ragmon.toml", *options)


def account(folder, **how):
    return of_journal(load(folder / "ragmon.toml", environ={}), folder / "state", **how)


def table(done):
    """The numbers that are printed, by column."""
    head, numbers = done.out.splitlines()[:2]
    return dict(zip(head.split(), numbers.split(), strict=True))


@contextmanager
def database(folder):
    with closing(sqlite3.connect(folder / "state" / "journal.db")) as connection, connection:
        yield connection


def rewrite(folder, seq, **changed):
    """Change a row as somebody would who knows how: with its checksum."""
    with database(folder) as connection:
        find = "SELECT seq, arrival, n, counts, lines FROM rows WHERE seq = ?"
        row = JournalRow._make(connection.execute(find, (seq,)).fetchone())
        row = row._replace(**{name: change(getattr(row, name)) for name, change in changed.items()})
        write = "UPDATE rows SET arrival = ?, n = ?, counts = ?, lines = ?, sum = ? WHERE seq = ?"
        connection.execute(write, (*row[1:], checksum(*row), seq))


@pytest.mark.slow
def test_a_sound_journal_is_read_replayed_and_accounted_for(folder):
    done = verify(folder)
    assert (done.code, done.err) == (0, f"the journal in {folder / 'state'}\n")
    others = dict.fromkeys(("ignored", "dropped", "duplicate", "pending", "residual"), "0")
    assert table(done) == {"stage": "ingest", "received": "360", "scored": "360", **others}
    assert "ok: rows 1 to 12 can be read, 360 lines, and none is missing" in done.out
    assert SECRET not in done.out


@pytest.mark.slow
def test_the_digest_is_the_one_the_server_holds(tmp_path):
    with serving(tmp_path) as running:
        rows(running, 3)
        done = verify(tmp_path, "--deep")
        digest = running.server.writer.server_state.engine.scorer.state.digest()
    assert f"ok: checkpoint and replay agree: {digest[:16]}" in done.out


@pytest.mark.slow
def test_a_running_server_and_its_journal_say_the_same_whatever_came(tmp_path, data):
    """Against a plain count of what was sent: good, twice, too old, too early, unreadable, and traces that wait."""
    patient = AssemblyLimits(idle=300.0, rootless=300.0, age=600.0)
    draw, now = random.Random(7), time.time()
    kinds = [draw.choice(["good", "good", "twice", "old", "early", "broken", "spans"]) for _ in range(60)]
    with serving(tmp_path, assembly_limits=patient) as running:
        for n, kind in enumerate(kinds):
            one_more(running, data, n, kind, now)
        books = running.books()
        by_url = ragmon("verify", "--url", running.admin)
        beside = verify(tmp_path)
    after = verify(tmp_path)
    count = {kind: kinds.count(kind) for kind in kinds}
    expected = {
        "received": len(kinds) + count["twice"],
        "scored": count["good"] + count["twice"],
        "dropped": count["old"] + count["early"] + count["broken"],
        "duplicate": count["twice"],
        "pending": count["spans"],
    }
    assert {name: int(table(by_url)[name]) for name in expected} == expected
    assert books["residual"] == 0
    assert [done.code for done in (by_url, beside, after)] == [0, 0, 0]
    assert table(by_url) == table(beside) == table(after)
    reasons = {"malformed_protobuf": "broken", "too_future": "early", "too_old": "old"}
    told = ", ".join(f"{reason} {count[kind]}" for reason, kind in reasons.items())
    assert all(f"ingest dropped: {told}" in done.out for done in (by_url, beside, after))


@pytest.mark.slow
def test_beside_a_server_that_is_written_to_every_look_is_of_one_moment(tmp_path, data):
    """Traces begin, wait and become records between two reads: the books balance all the same."""
    ended, sent = threading.Event(), []

    def write(running):
        while not ended.is_set():
            one_more(running, data, len(sent), "spans" if len(sent) % 2 else "good", time.time())
            sent.append(1)

    with serving(tmp_path, assembly_limits=AssemblyLimits(idle=0.05, rootless=0.1, age=5.0)) as running:
        thread = threading.Thread(target=write, args=(running,))
        thread.start()
        try:
            looks = [account(tmp_path, deep=False) for _ in range(40)]
        finally:
            ended.set()
            thread.join()
    assert [look.failed for look in looks] == [()] * 40
    assert [look.stages["ingest"].residual for look in looks] == [0] * 40
    assert len({look.stages["ingest"].received for look in looks}) > 5
    assert any(look.stages["ingest"].pending for look in looks)


def one_more(running, data, n, kind, now):
    """Send one thing of a kind."""
    if kind == "broken":
        assert post(f"{running.otlp}/v1/traces", b"\xff\xff", "application/x-protobuf")[0] == 400
    elif kind == "spans":
        spans = fresh(recorded(data / "spans" / "oi_langchain.json")[-1])
        body = message([span._replace(trace_id=f"{n + 1:032x}") for span in spans])
        assert post(f"{running.otlp}/v1/traces", body, "application/x-protobuf")[0] == 200
    elif kind == "twice":
        body = span_of(request(n, ts=now))
        assert [post(f"{running.otlp}/v1/traces", body, "application/x-protobuf")[0] for _ in range(2)] == [200, 200]
    else:
        ts = {"good": now, "old": now - 2 * 86_400, "early": now + 3600}[kind]
        assert send(running, [request(n, ts=ts)]) == {}


def span_of(record):
    """The request of a producer that sends one record."""
    return of_records([record], RESOURCE).SerializeToString()


@pytest.mark.slow
def test_what_producers_say_they_sent_and_did_not_arrive_is_told(tmp_path):
    now = time.time()
    told = {"ts": now, "instance": "a", "started": now - 60, "pipeline": "support", "source": "live"}
    line = Totals(**told, stratum="rest", calls=1000, kept=110, dropped={"queue_full": 4})
    with serving(tmp_path) as running:
        with closing(OtlpExporter(running.otlp, resource=RESOURCE)) as sink:
            assert sink.deliver([request(n) for n in range(100)]) == {}
            assert sink.report([line])
        running.settled(100)
        by_url = ragmon("verify", "--url", running.admin)
    for done in (by_url, verify(tmp_path)):
        assert done.code == 0
        assert "sent by producers and not received: 6; some may be on their way" in done.out
        assert "lost by producers: queue_full 4" in done.out


@pytest.mark.slow
def test_spans_that_belong_to_no_record_are_told(tmp_path, data):
    spans = fresh(recorded(data / "spans" / "oi_langchain.json")[-1])
    with serving(tmp_path) as running:
        for _ in range(2):
            body = message(spans)
            assert post(f"{running.otlp}/v1/traces", body, "application/x-protobuf")[0] == 200
        running.settled(1)
        by_url = ragmon("verify", "--url", running.admin)
    assert f"spans of no record: duplicate {len(spans)}" in by_url.out


@pytest.mark.slow
def test_the_configured_server_is_asked_and_where_none_answers_its_journal_is_read(tmp_path):
    port = free_port()
    with serving(tmp_path) as running:
        rows(running, 1)
        (tmp_path / "asking.toml").write_text(f'[serve]\nadmin = "{running.admin.removeprefix("http://")}"\n')
        asked = ragmon("verify", "--config", tmp_path / "asking.toml")
        assert (asked.code, asked.err) == (0, f"the server on {running.admin.removeprefix('http://')}\n")
    (tmp_path / "alone.toml").write_text(f'[serve]\nadmin = "127.0.0.1:{port}"\nstate_dir = "state"\n')
    alone = ragmon("verify", "--config", tmp_path / "alone.toml")
    assert (alone.code, alone.err) == (0, f"the journal in {tmp_path / 'state'}\n")
    assert table(asked) == table(alone)


@pytest.mark.slow
@pytest.mark.parametrize(("seqs", "named"), [([4], "row 4 is missing"), ([7, 8, 9], "rows 7 to 9 are missing")])
def test_rows_that_are_missing_are_named(folder, seqs, named):
    with database(folder) as connection:
        connection.executemany("DELETE FROM rows WHERE seq = ?", [(seq,) for seq in seqs])
    done = verify(folder)
    assert done.code == 1
    assert f"bad: {named}\n" in done.out


def test_the_first_rows_are_missing_where_no_checkpoint_says_what_they_said(folder):
    with database(folder) as connection:
        connection.execute("DELETE FROM rows WHERE seq <= 8")
    assert account(folder).failed == ("rows 7 to 8 are missing",)
    with database(folder) as connection:
        connection.execute("DELETE FROM checkpoints")
    assert account(folder).failed == ("rows 1 to 8 are gone, and no checkpoint holds their counts",)


def test_the_last_rows_are_missing_where_a_checkpoint_knows_of_them(folder):
    with database(folder) as connection:
        connection.execute("DELETE FROM rows WHERE seq > 10")
    assert account(folder).failed == ("a checkpoint includes row 12, but the newest row is 10",)


@pytest.mark.slow
@pytest.mark.parametrize("expired", ["some rows", "all rows"])
def test_rows_that_had_their_time_are_not_missed(folder, expired):
    """Retention deletes them up to a checkpoint, which a replay begins with."""
    before = 1e12
    if expired == "some rows":
        with database(folder) as connection:
            (before,) = connection.execute("SELECT at + 0.001 FROM checkpoints WHERE seq = 6").fetchone()
    journal = Journal(folder / "state", RetentionLimits(retention=0.0), clock=lambda: before)
    while journal.expire():
        pass
    first = next(journal.rows(), None)
    journal.close()
    assert (None if first is None else first.seq) == (7 if expired == "some rows" else None)
    done = verify(folder, "--deep")
    assert done.code == 0, done.out
    assert table(done)["received"] == "360"
    assert "checkpoint and replay agree" in done.out


@pytest.mark.slow
def test_a_journal_that_was_begun_anew_goes_on_with_its_numbers(tmp_path):
    with serving(tmp_path) as running:
        rows(running, 3)
        writer = running.server.writer
        writer.run_between_rows(writer._reset_journal).result(TIMEOUT)
        send(running, [request(1000)])
        running.settled(91)
    done = verify(tmp_path)
    assert done.code == 0, done.out
    assert "ok: rows 4 to 4 can be read" in done.out


@pytest.mark.slow
def test_a_damaged_row_is_found(folder):
    with database(folder) as connection:
        connection.execute("UPDATE rows SET lines = replace(lines, 'q95', 'q96') WHERE seq = 4")
    done = verify(folder)
    assert done.code == 1
    assert "bad: after row 3: " in done.out


@pytest.mark.slow
def test_a_damaged_file_is_told_and_is_no_crash(folder):
    path = folder / "state" / "journal.db"
    content = bytearray(path.read_bytes())
    content[4096 * 2 : 4096 * 30] = bytes(4096 * 28)
    path.write_bytes(content)
    done = verify(folder)
    assert done.code == 1
    assert "is damaged" in done.out
    assert "Traceback" not in done.err


@pytest.mark.slow
def test_a_count_that_was_changed_leaves_a_residual(folder):
    """The rows after the newest checkpoint are counted again."""
    with database(folder) as connection:
        connection.execute("DELETE FROM checkpoints WHERE seq = 12")
    rewrite(folder, 9, counts=lambda told: json.dumps({**json.loads(told), "received": 32}).encode())
    done = verify(folder, "--no-deep")
    assert done.code == 1
    assert "bad: records of ingest that are unaccounted for: 2" in done.out
    assert table(done)["residual"] == "2"


@pytest.mark.slow
def test_a_record_that_was_changed_is_found_by_a_replay_alone(folder):
    rewrite(folder, 9, lines=lambda lines: lines.replace(b"an answer", b"not in context", 1))
    assert verify(folder, "--no-deep").code == 0
    done = verify(folder)
    assert done.code == 1
    assert "bad: checkpoint and replay differ: " in done.out
    assert "the configuration is not the one the rows were scored under" in done.out


@pytest.mark.slow
def test_counts_that_were_changed_before_a_checkpoint_are_found_by_a_replay_alone(folder):
    rewrite(folder, 2, counts=lambda told: json.dumps({**json.loads(told), "duplicate": 5}).encode())
    assert verify(folder, "--no-deep").code == 0
    assert "bad: checkpoint and replay differ in what was received" in verify(folder).out


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"lines": lambda lines: lines[: lines.index(b"\n") + 1]}, "row 5 held 30 lines and holds 1"),
        ({"lines": lambda lines: lines.replace(b"{", b"[", 1)}, "row 5 cannot be read"),
        ({"counts": lambda told: b"[]"}, "row 5 cannot be read"),
        ({"arrival": lambda arrival: arrival - 1000}, "row 5 came before row 4"),
    ],
)
def test_a_row_that_is_not_what_it_was_is_named(folder, changed, named):
    rewrite(folder, 5, **changed)
    assert account(folder).failed == (named,)


def test_only_the_first_faults_are_named(folder):
    for seq in range(1, 13):
        rewrite(folder, seq, counts=lambda told: b"[]")
    wrong = account(folder).failed
    assert wrong[:2] == ("row 1 cannot be read", "row 2 cannot be read")
    assert (len(wrong), wrong[-1]) == (11, "2 more rows have problems")


def test_a_large_journal_is_replayed_when_somebody_says_so(folder, monkeypatch):
    monkeypatch.setattr(verifying, "DEEP", 359)
    found = account(folder)
    assert (found.holds, len(found.passed)) == (True, 1)
    assert found.notes == ("rows were not replayed: they hold more than 359 lines; --deep replays them anyway",)
    assert any("agree" in text for text in account(folder, deep=True).passed)


@pytest.mark.slow
def test_an_empty_journal_is_accounted_for(tmp_path):
    with serving(tmp_path):
        pass
    done = verify(tmp_path)
    assert (done.code, table(done)["received"]) == (0, "0")
    assert "ok: there is no row yet" in done.out


@pytest.mark.slow
def test_what_was_forgotten_is_not_missed(folder):
    erase(folder / "state", trace=f"{200:032x}")
    done = verify(folder)
    assert done.code == 0, done.out
    assert "note: records forgotten on request: 1" in done.out
    assert "note: checkpoints were not compared with a replay: records were forgotten on request" in done.out


@pytest.mark.slow
def test_what_was_forgotten_and_never_saved_as_counted_is_not_missed_either(tmp_path):
    """After a kill there is no checkpoint: what is counted is what the rows still hold."""
    configuration(tmp_path)
    with process(tmp_path) as running:
        send(running, [request(n) for n in range(20)])
        running.kill()
    erase(tmp_path / "state", trace=f"{7:032x}")
    done = verify(tmp_path)
    assert (done.code, table(done)["scored"], table(done)["residual"]) == (0, "19", "0")
    assert "ingest ignored: forgotten 1" in done.out


@contextmanager
def answering(pages):
    """A web server that answers with these pages, whatever they are worth."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path in pages else 404)
            self.end_headers()
            self.wfile.write(pages.get(self.path, b""))

        def log_message(self, *_):
            """Say nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def status(**told):
    return {"/api/status": json.dumps({"version": "1", "now": 0.0, "books": {}, **told}).encode()}


@pytest.mark.slow
def test_a_server_whose_books_do_not_balance_is_caught_whatever_it_says_of_itself():
    books = {"received": 10, "scored": 7, "duplicate": 0, "pending": 1, "ignored": {"no_rag": 1}, "residual": 0}
    with answering(status(books={"ingest": books})) as url:
        done = ragmon("verify", "--url", url)
    assert (done.code, table(done)["residual"]) == (1, "1")
    assert "bad: records of ingest that are unaccounted for: 1" in done.out


@pytest.mark.slow
def test_a_server_that_takes_nothing_does_not_pass():
    with answering(status(trouble="the journal cannot be written (disk_full)")) as url:
        done = ragmon("verify", "--url", url)
    assert done.code == 1
    assert "bad: the server accepts nothing: the journal cannot be written (disk_full)" in done.out


@pytest.mark.slow
def test_what_a_server_says_does_not_steer_the_terminal():
    with answering(status(spans_dropped={"\x1b[31mred": 1})) as url:
        assert "\x1b" not in ragmon("verify", "--url", url).out


@pytest.mark.slow
@pytest.mark.parametrize("page", [b"", b"hello", b"[]", b'{"books": 1}', b"\xff"])
def test_what_is_no_server_is_refused(page):
    with answering({"/api/status": page}) as url:
        message, hint = ragmon("verify", "--url", url).error
    assert "is not the admin port of `ragmon serve`" in message
    assert "[serve] admin" in hint


@pytest.mark.slow
def test_somebody_must_answer_where_a_url_is_given():
    port = free_port()
    message, hint = ragmon("verify", "--url", f"127.0.0.1:{port}").error
    assert f"no answer from 127.0.0.1:{port}" in message
    assert "ragmon serve" in hint


@pytest.mark.parametrize("url", ["127.0.0.1:port", "ftp://here", "http://", "http://h:port", "http://[::1"])
def test_what_is_no_address_is_refused(url):
    with pytest.raises(RagmonError, match="not an address"):
        of_server(url)


@pytest.mark.slow
def test_a_password_in_an_address_is_not_shown():
    message, _ = ragmon("verify", "--url", "http://me:hunter2@host").error
    assert "hunter2" not in message


@pytest.mark.slow
def test_there_must_be_a_journal(tmp_path):
    message, hint = ragmon("verify", "--state-dir", tmp_path).error
    assert message == f"there is no journal in {tmp_path}"
    assert "state_dir" in hint


@pytest.mark.slow
def test_where_nobody_answers_and_there_is_no_journal_both_are_said(tmp_path):
    (tmp_path / "ragmon.toml").write_text(f'[serve]\nadmin = "127.0.0.1:{free_port()}"\n')
    message, hint = ragmon("verify", cwd=tmp_path).error
    assert "no answer from 127.0.0.1" in message
    assert "and there is no journal in" in message
    assert hint == "--url URL, or --state-dir DIR"


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--url", "http://h", "--state-dir", "d"], ["--url", "http://h", "--deep"]])
def test_options_that_do_not_go_together_are_refused(options):
    message, _ = ragmon("verify", *options).error
    assert "give" in message
