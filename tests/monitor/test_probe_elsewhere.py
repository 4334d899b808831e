"""Probes from another process, and what the doctor says of them."""

from __future__ import annotations

import pytest

from tests.server.test_serve_probe import CONFIG, config, right
from tests.server.test_serve_reload import shown
from tests.support.command_line import ragmon, start
from tests.support.probed import web
from tests.support.serving import PORTS, accounted, process, replayed
from tests.support.waiting import TIMEOUT, wait_for

PRECISION = 'rag_answer_precision{gold="support",pipeline="support",source="probe",window="5m"}'


@pytest.mark.slow
def test_a_prober_in_a_process_of_its_own_sends_its_records_to_the_server(tmp_path):
    here = tmp_path / "prober"
    here.mkdir()
    text = config(tmp_path, "x:y").replace("x:y", "{}").partition("[probe.support]")[0]
    (tmp_path / "ragmon.toml").write_text(text + PORTS)
    with web(right) as there, process(tmp_path) as running:
        probing = config(here, there.url, "1s", f'[export]\nendpoint = "{running.otlp}"\n')
        (here / "ragmon.toml").write_text(probing)
        with start("probe", cwd=here) as prober:
            wait_for(lambda: len(there.asked), lambda n: n >= 12)
            prober.terminate()
            _, err = prober.communicate(timeout=TIMEOUT)
        assert prober.returncode == 0, err
        books = wait_for(running.books, lambda found: found["scored"] >= 11)
        assert accounted(running)["scored"] == books["scored"]
        metrics = shown(running)
        assert metrics[PRECISION] == 1.0
        assert not [name for name in metrics if name.startswith("rag_") and 'source="live"' in name]
        assert running.stop() == 0
    assert replayed(tmp_path)


class TestDoctor:
    def told(self, folder, text):
        """What the doctor says of probes."""
        (folder / "ragmon.toml").write_text(text)
        done = ragmon("doctor", cwd=folder)
        lines = done.out.splitlines()
        place = next(n for n, line in enumerate(lines) if line.startswith("probe "))
        return done.code, lines[place], lines[place + 1].strip()

    @pytest.mark.slow
    def test_it_says_who_is_asked_how_often(self, tmp_path):
        code, told, _ = self.told(tmp_path, config(tmp_path, "myapp.rag:answer", "1h"))
        assert (code, told) == (
            0,
            "probe     ok    support asks myapp.rag:answer the 12 questions of support in 60 min",
        )

    @pytest.mark.slow
    def test_it_says_that_the_budget_allows_no_more(self, tmp_path):
        text = config(tmp_path, "myapp.rag:answer", "1m").replace("1000000000", "50")
        _, told, hint = self.told(tmp_path, text)
        assert told.endswith("the 12 questions of support in 7.2 h")
        assert hint == "hint: max_per_day = 50 allows no more"

    @pytest.mark.slow
    def test_it_says_that_a_traced_application_will_believe_nothing(self, tmp_path):
        _, _, hint = self.told(tmp_path, config(tmp_path, "http://127.0.0.1:1/", "1h"))
        assert "`[capture] hash_key_file` there and here" in hint

    @pytest.mark.slow
    def test_gold_without_a_question_is_a_problem(self, tmp_path):
        config(tmp_path, "a:b")
        (tmp_path / "gold.jsonl").write_text('{"qid": "q", "answerable": false}\n')
        code, told, _ = self.told(tmp_path, CONFIG.format("a:b", "1h"))
        assert (code, told) == (1, "probe     bad   support: gold set support has no question to ask")
