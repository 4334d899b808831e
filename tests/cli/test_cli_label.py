"""`ragmon label` and `ragmon.label`: labels in by sheet or by code, and what to look at next, out."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections import deque
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

import ragmon as library
from ragmon.capture import trace as giving
from ragmon.cli.client import TRIES
from ragmon.config.load import load
from ragmon.core.record import Label, Record, Sampling, encode
from ragmon.ingest.lines import decode
from ragmon.monitor.install import Installation
from ragmon.testing import make_record
from tests.support.command_line import on_terminal, ragmon
from tests.support.serving import asked, configuration, post, send_body, serving, whole
from tests.support.waiting import wait_for

NOW = 1_763_683_200.0


def trace(number):
    return f"{number + 1:032x}"


def sheet(folder, rows, head="trace_id,correct,rater"):
    path = folder / "sheet.csv"
    path.write_text("\n".join((head, *rows)) + "\n")
    return path


class TestImport:
    """A sheet goes to a server, or into a file of label lines."""

    @pytest.mark.slow
    def test_a_sheet_is_joined_at_a_server_and_again_changes_nothing(self, tmp_path):
        path = sheet(tmp_path, [f"{trace(n)},{'yes' if n % 2 else 'no'},ada" for n in range(10)])
        with serving(tmp_path) as running:
            send_body(running, whole([asked(n) for n in range(10)]))
            running.settled(10)
            for _ in range(2):
                done = ragmon("label", "import", path, "--url", running.otlp)
                assert (done.code, done.out) == (0, "10 labels accepted\n"), done.err
            found = wait_for(lambda: running.status()["labels"], lambda told: sum(told.values()) == 20)
            assert found == {"joined": 10, "duplicate": 10, "waiting": 0}

    @pytest.mark.slow
    def test_a_dry_run_says_what_it_read_and_tells_nobody(self, tmp_path):
        path = sheet(tmp_path, [f"{trace(n)},{n % 2},ada" for n in range(10)])
        done = ragmon("label", "import", path, "--dry-run", "--url", "http://127.0.0.1:1")
        assert done.code == 0
        assert done.out.splitlines() == [
            "10 labels on 10 answers",
            "raters: ada 10",
            "correct: 10 labels, mean 0.500",
        ]

    @pytest.mark.slow
    def test_columns_come_from_the_configuration(self, tmp_path):
        config = tmp_path / "ragmon.toml"
        config.write_text(
            '[labels]\ncolumn = { trace_id = "Trace", correct = "OK" }\nvalues = { true = ["x"], false = ["-"] }\n'
        )
        path = sheet(tmp_path, [f"{trace(1)},x", f"{trace(2)},-"], "Trace,OK")
        done = ragmon("label", "import", path, "--config", config, "--rater", "ada", "--output", tmp_path / "out.jsonl")
        assert done.code == 0, done.err
        lines = [decode(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
        assert lines == [
            Label(trace_id=trace(1), rater="ada", correct=True),
            Label(trace_id=trace(2), rater="ada", correct=False),
        ]

    @pytest.mark.slow
    def test_a_wrong_row_is_named_and_nothing_is_sent(self, tmp_path):
        error, hint = ragmon("label", "import", sheet(tmp_path, [f"{trace(1)},perhaps,ada"])).error
        assert error.endswith("sheet.csv:2: correct is 'perhaps', and [labels.values] knows yes, true, 1, no, false, 0")
        assert "[labels]" in hint

    @pytest.mark.slow
    def test_nobody_there_is_said(self, tmp_path):
        path = sheet(tmp_path, [f"{trace(1)},1,ada"])
        done = ragmon("label", "import", path, "--url", "http://127.0.0.1:1")
        assert done.code == 3
        assert "no answer from 127.0.0.1:1" in done.err


def record(number, *, audit=True, **fields):
    sampling = Sampling(audit=audit, stratum="rest" if audit else "slow", p_audit=0.1, p=0.1)
    return make_record(v=1, trace_id=trace(number), ts=NOW + number, source="live", sampling=sampling, **fields)


class TestQueue:
    """What to look at next: a sample first, then what least is known of."""

    def queued(self, folder, lines, *options):
        path = folder / "log.jsonl"
        path.write_bytes(b"".join(map(encode, lines)))
        done = ragmon("label", "queue", path, "--format", "jsonl", *options)
        assert done.code == 0, done.err
        return [json.loads(line) for line in done.out.splitlines()]

    def test_on_a_terminal_it_names_the_command_that_shows_one(self, tmp_path):
        """The command can be typed as it stands."""
        (tmp_path / "log.jsonl").write_bytes(b"".join(map(encode, [record(n) for n in range(3)])))
        done = on_terminal("stdout", "label", "queue", tmp_path / "log.jsonl")
        command = done.err.strip().removeprefix("one of them: ragmon ")
        shown = ragmon(*command.split())
        assert (shown.code, shown.err) == (0, ""), command
        assert shown.out.startswith(f"trace     {command.split()[1]}  ")

    @pytest.mark.slow
    def test_answers_of_the_uniform_draw_come_first_in_an_order_of_chance(self, tmp_path):
        lines = [record(n, audit=n % 2 == 0) for n in range(100)]
        rows = self.queued(tmp_path, lines, "--limit", 60)
        assert [row["sample"] for row in rows] == ["audit"] * 50 + ["informative"] * 10
        places = [int(row["trace_id"], 16) for row in rows[:50]]
        assert places != sorted(places)
        assert places == [int(row["trace_id"], 16) for row in self.queued(tmp_path, lines[::-1], "--limit", 50)]

    @pytest.mark.slow
    def test_of_the_others_those_come_first_whose_scores_say_least(self, tmp_path):
        told = {0: 0.9, 1: 0.5, 2: 0.0, 3: 0.6}
        lines = [record(n, audit=False, measures={"judge_faithfulness": f}) for n, f in told.items()]
        assert [int(row["trace_id"], 16) - 1 for row in self.queued(tmp_path, lines)] == [1, 3, 0, 2]

    @pytest.mark.slow
    def test_what_is_labelled_or_a_probe_or_an_error_is_not_asked_again(self, tmp_path):
        lines = [record(0), record(1), Record(v=1, trace_id=trace(2), source="probe"), record(3, error="TimeoutError")]
        lines.append(Label(trace_id=trace(1), rater="ada", correct=True))
        assert [row["trace_id"] for row in self.queued(tmp_path, lines)] == [trace(0)]

    @pytest.mark.slow
    def test_text_is_shown_only_when_asked_for_and_never_as_a_formula(self, tmp_path):
        lines = [record(0, q="=cmd()", claim="an answer")]
        assert "question" not in self.queued(tmp_path, lines)[0]
        assert self.queued(tmp_path, lines, "--text")[0]["question"] == "'=cmd()"

    @pytest.mark.slow
    def test_a_servers_journal_makes_a_sheet_that_import_reads(self, tmp_path):
        links = '[links]\ntrace = "https://traces.example/{trace_id}"\n'
        with serving(tmp_path, links) as running:
            send_body(running, whole([asked(n) for n in range(5)]))
            running.settled(5)
            config = tmp_path / "ragmon.toml"
            done = ragmon("label", "queue", "--config", config, "--state-dir", tmp_path / "state")
            assert done.code == 0, done.err
            rows = list(csv.DictReader(io.StringIO(done.out)))
            assert {row["link"] for row in rows} == {f"https://traces.example/{trace(n)}" for n in range(5)}
            for row in rows:
                row["correct"] = "yes"
            text = io.StringIO()
            writer = csv.DictWriter(text, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
            (tmp_path / "filled.csv").write_text(text.getvalue())
            done = ragmon("label", "import", tmp_path / "filled.csv", "--rater", "ada", "--url", running.otlp)
            assert done.out == "5 labels accepted\n", done.err
            wait_for(lambda: running.status()["labels"], lambda told: told == {"joined": 5, "waiting": 0})
            again = ragmon("label", "queue", "--config", config, "--state-dir", tmp_path / "state")
            assert "nothing to label" in again.err


class TestCall:
    """`ragmon.label` in the application."""

    @pytest.fixture
    def installed(self):
        """Installs with a configuration; ended at the end."""
        begun = []

        def install(config, **how):
            installation = Installation(load(config, environ={}), keep_all=True, **how)
            installation.start()
            begun.append(installation)
            return installation

        yield install
        for installation in begun:
            installation.shutdown()

    @staticmethod
    def answer():
        @library.trace
        def ask(question):
            given.append(library.trace_id())
            return {"answer": "yes", "citations": []}

        given = []
        ask("Is it?")
        return given[0]

    def test_a_monitor_in_the_application_joins_it(self, tmp_path, installed):
        installation = installed(configuration(tmp_path))
        traced = self.answer()
        installation.flush()
        library.label(traced, correct=True, rater="ada")
        library.label("f" * 32, correct=True, rater="ada")
        library.label(traced, correct=7, rater="ada")
        installation.flush()
        reading = installation.monitor.snapshot()
        assert reading.labels == {"joined": 1, "rejected": 1}
        assert reading.labels_waiting == 1
        assert reading.snapshot.find("default", "label").metrics["answer_correct"].value == 1.0

    def test_it_goes_to_the_server_that_records_go_to(self, tmp_path, installed):
        with serving(tmp_path) as running:
            (tmp_path / "app").mkdir()
            config = tmp_path / "app" / "ragmon.toml"
            config.write_text(f'[export]\nendpoint = "{running.otlp}"\n')
            installation = installed(config)
            traced = self.answer()
            library.label(traced, correct=False, relevant_ids=("d1", "d2"), rater="ada", comment="no")
            installation.flush()
            wait_for(lambda: running.status()["labels"], lambda told: told == {"joined": 1, "waiting": 0})

    @pytest.mark.slow
    def test_it_is_a_line_of_the_trace_log(self, tmp_path, installed):
        log = tmp_path / "log.jsonl"
        config = tmp_path / "ragmon.toml"
        config.write_text(f'[export]\njsonl = "{log}"\n')
        installation = installed(config)
        traced = self.answer()
        library.label(traced, correct=0.5, rater="ada")
        installation.flush()
        report = ragmon("replay", log).json
        assert report["labels"]["answers"] == 1
        (series,) = (one for one in report["series"] if one["source"] == "label")
        assert series["metrics"]["answer_correct"]["value"] == 0.5

    def test_one_label_that_is_none_takes_no_other_with_it(self, tmp_path, installed):
        def broken():
            yield "d1"
            raise RuntimeError

        with serving(tmp_path) as running:
            (tmp_path / "app").mkdir()
            config = tmp_path / "app" / "ragmon.toml"
            config.write_text(f'[export]\nendpoint = "{running.otlp}"\n')
            installation = installed(config)
            library.label(trace(1), correct=True, rater="ada", comment="\ud800")
            library.label(trace(1), relevant_ids=broken(), rater="ada")
            library.label(trace(1), relevant_ids="d1", rater="ada")
            library.label(trace(1), relevant_ids=itertools.repeat("d1"), rater="ada")
            library.label(trace(2), correct=True, rater="ada")
            installation.flush()
            wait_for(lambda: running.status()["labels"], lambda told: told == {"waiting": 1})
            assert installation._labels.dropped == {"rejected": 4}

    def test_all_that_wait_are_handed_on_when_the_application_ends(self, tmp_path, installed):
        log = tmp_path / "log.jsonl"
        config = tmp_path / "ragmon.toml"
        config.write_text(f'[export]\njsonl = "{log}"\n')
        installation = installed(config)
        for n in range(2500):
            library.label(trace(n), correct=True, rater="ada")
        installation.shutdown()
        assert len(log.read_bytes().splitlines()) == 2500

    @pytest.mark.slow
    def test_a_server_that_is_down_gets_it_when_it_is_back(self, tmp_path, installed):
        with serving(tmp_path) as running:
            port = running.otlp
        config = tmp_path / "app.toml"
        config.write_text(f'[export]\nendpoint = "{port}"\n')
        installation = installed(config)
        library.label(trace(1), correct=True, rater="ada")
        installation.flush(1.0)
        assert len(installation._labels) == 1
        places = f'otlp = "{port.removeprefix("http://")}"\ngrpc = "127.0.0.1:0"\nadmin = "127.0.0.1:0"\n'
        again = f'[serve]\n{places}state_dir = "state"\n'
        (tmp_path / "ragmon.toml").write_text(again)
        with _server(tmp_path / "ragmon.toml") as server:
            installation.flush(5.0)
            wait_for(lambda: server.writer.server_state.engine.labels.store.pending, lambda waiting: waiting == 1)

    def test_without_an_installation_it_is_lost_with_a_word(self, caplog):
        assert giving.label_sender is None
        library.label(trace(1), correct=True, rater="ada")
        assert "ragmon.label was called before ragmon.install" in caplog.text

    def test_labels_cannot_fill_the_memory(self):
        taking = giving.LabelSender()
        for _ in range(giving.MOST + 5):
            taking.put({})
        assert (len(taking), taking.dropped) == (giving.MOST, {"dropped": 5})


def _server(path):
    from ragmon.server.server import Server  # noqa: PLC0415 - one test's

    return Server(load(path, environ={}))


class Gateway(ThreadingHTTPServer):
    """Stands before a server, and answers in its place as long as there is something in the script.

    Attributes:
        script: Status and `Retry-After` of the next answers.
    """

    def __init__(self, behind, script):
        super().__init__(("127.0.0.1", 0), Passing)
        self.behind = behind
        self.script = deque(script)
        self.url = f"http://127.0.0.1:{self.server_port}"


class Passing(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.script:
            status, again = self.server.script.popleft()
            told = json.dumps({"error": "nothing can be written", "hint": "later"})
        else:
            (status, told), again = post(self.server.behind + self.path, json.loads(body)), None
        self.send_response(status)
        if again is not None:
            self.send_header("Retry-After", again)
        self.end_headers()
        self.wfile.write(told.encode())

    def log_message(self, *_):
        pass


@contextmanager
def gateway(behind, script):
    with Gateway(behind, script) as there:
        Thread(target=there.serve_forever, daemon=True).start()
        yield there
        there.shutdown()


class TestABusyServer:
    """What cannot be taken now may be taken in a moment."""

    @pytest.mark.slow
    def test_a_server_that_is_busy_or_away_for_a_moment_is_told_again(self, tmp_path):
        path = sheet(tmp_path, [f"{trace(n)},yes,ada" for n in range(10)])
        with serving(tmp_path) as running, gateway(running.otlp, [(503, "0"), (429, "0"), (502, None)]) as there:
            done = ragmon("label", "import", path, "--url", there.url)
            assert (done.code, done.out) == (0, "10 labels accepted\n"), done.err
            assert wait_for(lambda: running.status()["labels"], lambda told: told.get("waiting") == 10)
        waits = [line.partition(" answered ")[2] for line in done.err.splitlines() if "answered" in line]
        assert waits[:2] == ["503: trying again in 0 s", "429: trying again in 0 s"]
        (third,) = waits[2:]
        assert re.fullmatch("502: trying again in [0-8] s", third)

    @pytest.mark.slow
    def test_a_server_that_stays_busy_is_told_a_few_times_and_then_it_is_said_why(self, tmp_path):
        path = sheet(tmp_path, [f"{trace(0)},yes,ada"])
        with gateway("http://127.0.0.1:1", [(503, "0")] * 99) as there:
            done = ragmon("label", "import", path, "--url", there.url)
            assert 99 - len(there.script) == TRIES
        assert done.code == 3
        assert "nothing can be written" in done.err

    @pytest.mark.slow
    @pytest.mark.parametrize("status", [400, 401, 413, 500])
    def test_what_is_refused_is_told_once(self, tmp_path, status):
        path = sheet(tmp_path, [f"{trace(0)},yes,ada"])
        with gateway("http://127.0.0.1:1", [(status, "0")] * 99) as there:
            assert ragmon("label", "import", path, "--url", there.url).code == 3
            assert len(there.script) == 98
