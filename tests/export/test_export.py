"""`[export]`: records, totals and scores on their way out of an application, to a real receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from opentelemetry.sdk.trace import TracerProvider

import ragmon
from ragmon.capture import call
from ragmon.core.errors import RagmonError
from ragmon.monitor.install import Installation
from ragmon.testing import Collected
from tests.support.capturing import BrokenError
from tests.support.otlp_receiver import Answer, attributes, receiving


@pytest.fixture
def receiver():
    with receiving() as server:
        yield server


@pytest.fixture
def installed(configured):
    """Installs by the text of a configuration, and takes it away again."""
    before, made = call.current, []

    def install(text, sink=None):
        made.append(Installation(configured(text), sink, keep_all=True))
        made[-1].start()
        return made[-1]

    yield install
    for one in made:
        one.shutdown(30)
    call.install_runtime(before)


@ragmon.trace(name="support")
def answer(question):
    ragmon.record(retrieved=["d1", "d2"])
    if question == "raise":
        raise BrokenError(question)
    return {"claim": question, "citations": ["d1"]}


def test_records_and_totals_reach_the_server_the_configuration_names(installed, receiver):
    one = installed(f'[export]\nendpoint = "{receiver.endpoint}"')
    for question in ("first", "second"):
        answer(question)
    assert one.flush(30)
    assert [(r.pipeline, r.retrieved_ids) for r in receiver.records()] == [("support", ["d1", "d2"])] * 2
    receiver.wait_for(lambda: receiver.of("/v1/metrics"))
    (requests,) = [metric for metric in receiver.metrics() if metric.name == "rag.requests"][-1:]
    assert sum(point.as_int for point in requests.sum.data_points) == 2
    assert one.monitor is None, "who sends to a server serves no metrics of its own"


@pytest.mark.slow
def test_the_text_of_users_stays_unless_it_was_asked_for(installed, receiver):
    installed(f'[export]\nendpoint = "{receiver.endpoint}"').flush(30)
    answer("a secret question")
    assert b"secret" not in b"".join(request.message.SerializeToString() for request in receiver.requests)


REDACTED = """
[capture]
content = "redacted"
redactors = ["{redactor}"]
[export]
jsonl = "trace.jsonl"
"""


def test_redactors_of_the_application_are_named_in_the_configuration(installed, tmp_path):
    one = installed(REDACTED.format(redactor="builtins:ascii"), Collected())
    answer("wo wohnt someone@example.org?")
    assert one.shutdown(30)
    written = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert [line["q"] for line in written if line.get("kind") != "totals"] == ["'wo wohnt [email]?'"]


def test_a_redactor_that_fails_costs_the_text_and_is_counted(installed, tmp_path):
    one = installed(REDACTED.format(redactor="builtins:int"), Collected())
    answer("a secret question")
    assert one.flush(30)
    assert one.captured().withheld == 1
    assert one.counters().scored == 1
    assert "secret" not in (tmp_path / "trace.jsonl").read_text()


@pytest.mark.parametrize(
    ("redactor", "said"),
    [("nowhere:clear", "is not there"), ("json:nothing", "is not there"), ("sys:path", "not a function")],
)
def test_a_redactor_that_is_not_there_is_refused_at_the_start(configured, redactor, said):
    with pytest.raises(RagmonError, match=said):
        Installation(configured(REDACTED.format(redactor=redactor)), Collected())


@pytest.mark.parametrize(
    ("content", "wrong"), [(b"\xff", "token cannot be read"), (b"fifteen-letters\n", "too short: 15 bytes")]
)
def test_a_token_that_cannot_be_read_or_can_be_guessed_is_refused_at_the_start(configured, tmp_path, content, wrong):
    (tmp_path / "token").write_bytes(content)
    with pytest.raises(RagmonError, match=wrong):
        Installation(configured('[export]\nendpoint = "http://127.0.0.1:4318"\n[serve]\ntoken_file = "token"'))


def test_what_a_server_refuses_is_counted_by_reason(installed, receiver):
    receiver.answers.extend([Answer(status=400)] * 2)  # whatever comes first, counts or records
    one = installed(f'[export]\nendpoint = "{receiver.endpoint}"')
    answer("first")
    assert one.flush(30)
    books = one.counters()
    assert (books.received, books.scored, books.dropped, books.residual) == (1, 0, {"export_refused": 1}, 0)


def scores(receiver):
    return {
        (
            held["gen_ai.evaluation.name"],
            held["gen_ai.evaluation.score.value"],
            held.get("gen_ai.evaluation.score.label"),
        )
        for held in map(attributes, receiver.events())
    }


CONFIG = """
[export]
scores = "{endpoint}"
[gold.support]
path = "gold.jsonl"
[gates.citation_hit_rate]
at_least = 0.75
[gates."recall@3"]
at_least = 0.75
[gates.error_rate]
at_most = 0.1
"""


def test_scores_of_exported_traces_go_to_the_tracing_backend_under_their_span(installed, receiver, tmp_path):
    gold = {
        "qid": "q1",
        "question": "is it?",
        "answerable": True,
        "gold_citations": ["d1"],
        "gold_claim_substr": ["is"],
    }
    (tmp_path / "gold.jsonl").write_text(json.dumps(gold))
    sink = Collected()
    one = installed(CONFIG.format(endpoint=receiver.endpoint), sink)
    tracer = TracerProvider(shutdown_on_exit=False).get_tracer("app")
    with tracer.start_as_current_span("request") as span:
        answer("is it?")
    answer("outside of any trace")
    assert one.flush(30)
    assert scores(receiver) == {
        ("citation_hit_rate", 1.0, "pass"),
        ("recall@3", 1.0, "pass"),
        ("error_rate", 0.0, "pass"),
    }
    context = span.get_span_context()
    where = {(event.trace_id.hex(), event.span_id.hex()) for event in receiver.events()}
    assert where == {(f"{context.trace_id:032x}", f"{context.span_id:016x}")}
    assert len(sink.records) == 2, "the records go their own way"


@pytest.mark.slow
def test_a_tracing_backend_that_is_down_costs_no_record(installed, tmp_path):
    (tmp_path / "gold.jsonl").write_text('{"qid": "q1", "question": "is it?", "answerable": false}')
    sink = Collected()
    one = installed(CONFIG.format(endpoint="http://127.0.0.1:9"), sink)
    with TracerProvider(shutdown_on_exit=False).get_tracer("app").start_as_current_span("request"):
        answer("first")
    assert one.flush(30)
    assert (len(sink.records), one.counters().scored, one.counters().dropped) == (1, 1, {})


PROGRAM = """
import os, sys
import ragmon

@ragmon.trace(sample=1.0)
def answer(question):
    return {"answer": question, "citations": []}

installation = ragmon.install("ragmon.toml")
for _ in range(3):
    child = os.fork()
    if child == 0:
        for number in range(400):
            answer(str(number))
        os._exit(0)
    os.waitpid(child, 0)
for number in range(100):
    answer(str(number))
"""


@pytest.mark.slow
def test_children_that_leave_by_os_exit_and_a_server_together_account_for_every_call(receiver, tmp_path):
    """What a child had given to the server without an answer may have arrived: it is counted as unconfirmed."""
    (tmp_path / "ragmon.toml").write_text(f'[export]\nendpoint = "{receiver.endpoint}"')
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    for program in (PROGRAM, "import ragmon\nragmon.install('ragmon.toml').flush()"):
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, env=environment, check=True, timeout=60
        )
    lost = {}
    for metric in receiver.metrics():
        if metric.name == "ragmon.records.dropped":
            for point in metric.sum.data_points:
                held = attributes(point)
                lost[point.start_time_unix_nano, held["reason"]] = point.as_int
    arrived = len(receiver.records())
    unconfirmed = sum(n for (_, reason), n in lost.items() if reason == "unconfirmed")
    surely = sum(lost.values()) - unconfirmed
    assert arrived + surely <= 1300 <= arrived + surely + unconfirmed
    assert not list(tmp_path.rglob("*.page"))
