"""A function as the target of probes: whatever kind it is, its record is the whole one, and it is marked."""

from __future__ import annotations

import threading

import pytest

import ragmon
from ragmon.capture import call
from ragmon.config.load import defaults
from ragmon.core.errors import RagmonError
from ragmon.monitor import install
from ragmon.server.probes import ProbeWorkers
from tests.support import probed_functions
from tests.support.probed import QUESTION, ask, asking
from tests.support.waiting import TIMEOUT

KINDS = ("plain", "later", "instance", "instance.method")


@pytest.mark.parametrize("name", KINDS)
def test_what_is_said_inside_a_function_is_on_its_record(name):
    found = ask(f"tests.support.probed_functions:{name}")
    record = found.record
    assert (found.result, record.source, record.qid, record.pipeline) == ("ok", "probe", "q1", "support")
    assert (record.q, record.answer_json.claim) == (QUESTION.text, QUESTION.text.upper())
    assert (record.retrieved_ids, record.answer_json.citations, record.index_hash) == (["d1", "d2"], ["d1"], "i1")
    assert record.latency_ms.total is not None
    assert record.latency_ms.retrieve is not None
    assert (record.sampling.audit, record.sampling.p, record.sampling.stratum) == (True, 1.0, "rest")


@pytest.mark.parametrize("name", ["streamed", "streamed_later"])
def test_a_stream_is_read_to_its_end(name):
    record = ask(f"tests.support.probed_functions:{name}").record
    assert (record.answer_json.claim, record.retrieved_ids, record.ended) == ("in parts", ["d1"], None)


def test_a_traced_function_is_read_as_its_own_decorator_says_under_the_probes_pipeline():
    record = ask("tests.support.probed_functions:traced").record
    assert (record.pipeline, record.answer_json.claim, record.retrieved_ids) == ("support", "from below", ["d7"])


def test_the_configured_paths_go_before_the_decorators():
    record = ask("tests.support.probed_functions:traced", answer={"claim": "answer"}).record
    assert (record.answer_json.claim, record.retrieved_ids) == ("not this", None)


def test_what_a_function_raises_is_an_error_of_the_pipeline():
    found = ask("tests.support.probed_functions:breaks")
    assert (found.result, found.record.error, found.record.sampling.stratum) == ("error", "LookupError", "error")
    assert not found.overloaded


def test_a_timeout_of_the_application_is_no_timeout_of_the_probe():
    assert ask("tests.support.probed_functions:too_slow_itself").result == "error"


def test_an_async_function_is_cancelled_when_its_time_is_up():
    found = ask("tests.support.probed_functions:sleeps", timeout="200ms")
    assert (found.result, found.record.error, found.record.ended) == ("timeout", "TimeoutError", None)
    assert (found.record.partial, found.record.sampling.stratum) == (False, "error")


def test_async_clients_meet_the_same_loop_in_every_question():
    with asking("tests.support.probed_functions:same_loop") as client:
        loops = {client.ask(client.sending(QUESTION)).record.answer_json.claim for _ in range(3)}
    assert len(loops) == 1


def test_a_function_that_does_not_return_is_left_behind_and_keeps_its_place():
    probed_functions.HELD.clear()
    probed_functions.LET_GO.clear()
    with asking("tests.support.probed_functions:holds", timeout="100ms") as client:
        workers = ProbeWorkers(client, 1, grace=0.05)
        workers.send(QUESTION)
        assert probed_functions.HELD.wait(TIMEOUT)
        (found,) = workers.wait(TIMEOUT)
        assert (found.result, found.record.error, found.record.latency_ms.total) == ("timeout", "TimeoutError", 100.0)
        assert len(found.record.trace_id) == 32
        assert not workers.free
        assert not workers.busy
        probed_functions.LET_GO.set()
        while not workers.free:
            assert workers.wait(0.02) == []
    assert workers.wait(0) == []


def test_an_application_that_installs_ragmon_itself_changes_nothing():
    found = ask("tests.support.probed_functions:installs")
    assert (found.result, found.record.retrieved_ids) == ("ok", ["d1", "d2"])
    assert install._current is None
    assert call.current is None


def test_a_question_is_no_call_of_a_user():
    with asking("tests.support.probed_functions:plain") as client:
        for _ in range(3):
            client.ask(client.sending(QUESTION))
        counted = client.capture._installation.counters()
        calls = call.current.totals()
    assert counted.received == 3
    assert calls["support", "probe", "rest"] == 3
    assert not any(n for (_, source, _), n in calls.items() if source == "live")


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("no_such_module:ask", "ModuleNotFoundError"),
        ("tests.support.probed_functions:nothing", "AttributeError"),
        ("tests.support.probed_functions:HELD", "it is not a function"),
        ("tests.support.probed_functions:Callable", "it is not a function"),
    ],
)
def test_a_function_that_is_not_there_is_refused_with_a_hint(target, told):
    with pytest.raises(RagmonError, match=told) as refused:
        ask(target)
    assert "myapp.rag:answer" in refused.value.hint
    assert ragmon.trace_id() is None


def test_whatever_a_function_raises_its_place_is_free_again(capfd):
    with asking("tests.support.probed_functions:panics", concurrency=1, timeout="60s") as client:
        workers = ProbeWorkers(client, 1)
        workers.send(QUESTION)
        (found,) = workers.wait(TIMEOUT)
        assert (found.result, found.record.error, workers.free) == ("error", "PanicException", True)
    assert QUESTION.text not in capfd.readouterr().err


def test_where_no_thread_can_be_started_nothing_is_said_of_the_pipeline(monkeypatch):
    def full(_):
        raise RuntimeError("can't start new thread")

    with asking("tests.support.probed_functions:plain", concurrency=1) as client:
        workers = ProbeWorkers(client, 1)
        with monkeypatch.context() as patched:
            patched.setattr("ragmon.server.probes.Thread.start", full)
            workers.send(QUESTION)
        (found,) = workers.wait(0.0)
        assert (found.result, found.record, workers.free) == ("lost", None, True)


@pytest.mark.slow
def test_the_time_a_judge_takes_is_not_the_pipelines(judge, configured):
    let_go = threading.Event()
    judge("hangs")(lambda _: let_go.wait(TIMEOUT) and None)
    settings = configured("[judges.hangs]\nsample = 1.0")
    with asking("tests.support.probed_functions:plain", settings=settings, timeout="1s", concurrency=1) as client:
        workers = ProbeWorkers(client, 1, grace=0.0)
        workers.send(QUESTION)
        (found,) = workers.wait(TIMEOUT)
        let_go.set()
    assert (found.result, found.record.error, found.overloaded) == ("ok", None, False)


def test_a_question_under_way_comes_back_under_another_configuration():
    probed_functions.LET_GO.clear()
    probed_functions.HELD.clear()
    with asking("tests.support.probed_functions:holds", concurrency=1) as client:
        before = client.capture._installation
        workers = ProbeWorkers(client, 1)
        workers.send(QUESTION)
        assert probed_functions.HELD.wait(TIMEOUT)
        client.capture.go_on_with(defaults())
        probed_functions.LET_GO.set()
        (found,) = workers.wait(TIMEOUT)
        assert (found.result, found.record.answer_json.claim) == ("ok", "too late")
        assert not before._worker._thread.is_alive()
        assert client.ask(client.sending(QUESTION)).result == "ok"


def test_an_embedder_only_the_application_has_is_not_asked_for(configured):
    settings = configured('[gold.g]\npath = "gold.jsonl"\nembed = "elsewhere:embed"')
    (settings.path.parent / "gold.jsonl").write_text('{"qid": "q1", "question": "Who?", "answerable": false}')
    assert ask("tests.support.probed_functions:plain", settings=settings).result == "ok"


def test_a_judges_budget_is_the_days_whatever_is_configured_meanwhile(judge, configured):
    judge("paid")(lambda _: 1.0)
    settings = configured("[judges.paid]\nsample = 1.0\nmax_per_day = 2")
    with asking("tests.support.probed_functions:plain", settings=settings) as client:
        measures = []
        for _ in range(3):
            measures.append(client.ask(client.sending(QUESTION)).record.measures)
            client.capture.go_on_with(settings)
    assert measures == [{"judge_paid": 1.0}, {"judge_paid": 1.0}, None]


def test_a_judge_that_cannot_work_here_holds_up_no_probe(configured, caplog):
    settings = configured(
        '[judges.faithfulness]\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\napi_key_file = "elsewhere.key"\n'
    )
    assert ask("tests.support.probed_functions:plain", settings=settings).result == "ok"
    assert "probes are not judged here" in caplog.text
