"""A traced application knows the probes it is sent: by baggage that proves itself, and by no other."""

from __future__ import annotations

import json
import secrets
from contextlib import contextmanager
from time import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import baggage, context, propagate, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

import ragmon as library
from ragmon.capture.call import QID, TOKEN, VALID, is_proved, probe_question, sign
from ragmon.capture.convert import call_to_record
from ragmon.config.load import load
from ragmon.core.errors import RagmonError
from ragmon.monitor.capture_settings import probe_key
from ragmon.monitor.install import Installation
from ragmon.server.probe_client import trace_headers
from ragmon.testing import Collected
from tests.server.test_serve_probe import config, right
from tests.server.test_serve_reload import put, shown
from tests.support.capturing import capturing, pipeline
from tests.support.command_line import gold, lines, ragmon
from tests.support.probed import web
from tests.support.serving import PORTS, post, process
from tests.support.waiting import wait_for

KEY = b"k" * 32
traced = library.trace(pipeline)
texts = st.text(st.characters(codec="utf-8"), max_size=40)


@contextmanager
def request(trace_id, **members):
    """A request as the application's own instrumentation sees it: a span, and baggage."""
    told = trace.set_span_in_context(NonRecordingSpan(SpanContext(trace_id, 7, True, TraceFlags(1))))
    for name, value in members.items():
        told = baggage.set_baggage(f"ragmon.{name}", value, told)
    token = context.attach(told)
    try:
        yield
    finally:
        context.detach(token)


def kept(*, rate=1.0, key=KEY, trace_id=9, **members):
    """The record of a call in such a request, and what was counted of which source."""
    with capturing(rate, probe_key=key) as (found, calls), request(trace_id, **members):
        traced("Is it?")
    totals = {source: n for (_, source, _), n in found.totals().items() if n}
    return (call_to_record(calls[0]) if calls else None), totals


class TestBelieved:
    def test_one_that_proves_itself_is_a_probe_kept_whatever_the_rate_and_no_call_of_a_user(self):
        record, totals = kept(rate=0.0, qid="q1", token=sign(KEY, 9, "q1", time()))
        assert (record.source, record.qid, record.trace_id) == ("probe", "q1", f"{9:032x}")
        assert (record.sampling.audit, record.sampling.p) == (True, 1.0)
        assert totals == {"probe": 1}

    @pytest.mark.parametrize(
        "strange",
        [
            {},
            {"qid": "q1"},
            {"token": "abc"},
            {"qid": "q1", "token": ""},
            {"qid": "q1", "token": "no-code"},
            {"qid": "q1", "token": "\ud800-\ud800"},
            {"qid": 7, "token": 8},
        ],
        ids=repr,
    )
    def test_what_proves_nothing_is_a_users(self, strange):
        record, totals = kept(**strange)
        assert (record.source, totals) == ("live", {"live": 1})

    def test_the_proof_is_of_one_question_in_one_trace_under_one_key_for_a_while(self):
        token = sign(KEY, 9, "q1", time())
        for changed in ({"trace_id": 8}, {"qid": "q2"}, {"key": b"x" * 32}, {"key": None}):
            assert kept(**{"qid": "q1", "token": token, **changed})[0].source == "live"
        for off in (-VALID - 5, VALID + 5):
            assert kept(qid="q1", token=sign(KEY, 9, "q1", time() + off))[0].source == "live"

    def test_without_a_span_there_is_no_trace_to_prove_anything_of(self):
        token = context.attach(
            baggage.set_baggage(TOKEN, sign(KEY, 9, "q1", time()), baggage.set_baggage(QID, "q1", context.Context()))
        )
        try:
            with capturing(probe_key=KEY) as (_, calls):
                traced("q")
        finally:
            context.detach(token)
        assert call_to_record(calls[0]).source == "live"

    @given(st.binary(min_size=1), st.integers(1, (1 << 128) - 1), texts, st.floats(0, 4e9))
    def test_what_one_key_signs_that_key_believes_in_its_time(self, key, trace_id, qid, at):
        token = sign(key, trace_id, qid, at)
        assert is_proved(key, trace_id, qid, token) == (abs(time() - int(at)) <= VALID)
        assert not is_proved(key + b"x", trace_id, qid, token)


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=40))
def test_a_question_of_any_name_comes_through_opentelemetrys_own_propagators(qid):
    token = context.attach(propagate.extract(trace_headers(qid, "support", f"{9:032x}", KEY)))
    try:
        assert probe_question(KEY, 9) == qid
        assert trace.get_current_span().get_span_context().trace_id == 9
    finally:
        context.detach(token)


def test_a_name_that_cannot_be_written_is_believed_by_nobody():
    told = trace_headers("\ud800", "support", f"{9:032x}", KEY)
    token = context.attach(propagate.extract(told))
    try:
        assert probe_question(KEY, 9) is None
    finally:
        context.detach(token)


def test_the_key_of_probes_tells_nothing_of_the_key_of_questions(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(KEY)
    settings = load(_written(tmp_path, f'[capture]\nhash_key_file = "{path}"\n'), environ={})
    assert probe_key(settings.unconfigured.capture) not in (None, KEY)
    path.write_bytes(b"short")
    with pytest.raises(RagmonError, match="the key is too short"):
        probe_key(settings.unconfigured.capture)
    path.unlink()
    with pytest.raises(RagmonError, match="cannot be read"):
        probe_key(settings.unconfigured.capture)


def _written(folder, text):
    path = folder / "app.toml"
    path.write_text(text)
    return path


@contextmanager
def application(settings, sink=None):
    """A traced application behind HTTP, under the context an OpenTelemetry instrumentation gives its requests."""
    tracer = TracerProvider(sampler=ALWAYS_ON).get_tracer("app")
    library_answer = library.trace(name="support")(_answer)

    def serve(asked):
        token = context.attach(propagate.extract(asked.headers))
        try:
            with tracer.start_as_current_span("POST /ask"):
                return library_answer(asked)
        finally:
            context.detach(token)

    installed = Installation(settings, sink)
    installed.start()
    try:
        with web(serve) as there:
            yield there, installed
    finally:
        installed.shutdown()


def _answer(asked):
    told = right(asked)
    library.record(question=asked.question, retrieved=told["documents"], index_hash="i7")
    return told


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "probe.key"
    path.write_text(secrets.token_hex(32))
    return f'[capture]\nhash_key_file = "{path}"\n'


class TestOverHttp:
    @pytest.mark.slow
    def test_a_round_is_seen_by_the_application_as_probes_and_by_nobody_as_users(self, tmp_path, key):
        settings = load(_written(tmp_path, "[pipelines.support]\n[sampling]\nrate = 1.0\n" + key), environ={})
        sink = Collected()
        with application(settings, sink) as (there, installed):
            (tmp_path / "ragmon.toml").write_text(config(tmp_path, there.url, more=key))
            done = ragmon("probe", "--once", cwd=tmp_path)
            installed.flush()
            totals = installed._runtime.totals()
        assert done.code == 0, done.err
        replies = {found["qid"]: found for found in map(json.loads, done.out.splitlines())}
        assert {record.source for record in sink.records} == {"probe"}
        assert {record.qid: record.trace_id for record in sink.records} == {
            qid: found["trace_id"] for qid, found in replies.items()
        }
        assert {source for (_, source, _), n in totals.items() if n} == {"probe"}

    @pytest.mark.slow
    def test_a_stranger_who_says_the_same_is_a_user(self, tmp_path, key):
        settings = load(_written(tmp_path, "[pipelines.support]\n[sampling]\nrate = 1.0\n" + key), environ={})
        sink = Collected()
        with application(settings, sink) as (there, installed):
            (tmp_path / "ragmon.toml").write_text(config(tmp_path, there.url))  # without the key
            assert ragmon("probe", "--once", cwd=tmp_path).code == 0
            installed.flush()
        assert {record.source for record in sink.records} == {"live"}

    @pytest.mark.slow
    def test_a_server_that_probes_a_traced_application_moves_no_count_of_its_users(self, tmp_path, key):
        lines(tmp_path / "gold.jsonl", gold(8, 4))
        own = "[pipelines.support]\n[sampling]\nrate = 1.0\n"
        path = tmp_path / "ragmon.toml"
        path.write_text(config(tmp_path, "nowhere:ask", more=key) + PORTS)
        with process(tmp_path) as running:
            text = f'{own}[export]\nendpoint = "{running.otlp}"\n{key}'
            with application(load(_written(tmp_path, text), environ={})) as (there, installed):
                for n in range(20):
                    assert post(there.url, {"question": f"What is {n + 100}?"})[0] == 200
                installed.flush()
                before = wait_for(lambda: _live(running), lambda live: live.get(USERS) == 20)
                put(path, config(tmp_path, there.url, "500ms", key) + PORTS)
                installed.flush()
                metrics = wait_for(lambda: shown(running), lambda found: found.get(PROBES, 0) >= 20)
                # Totals of all calls come every ten seconds, or when they are asked for.
                installed.flush()
                wait_for(lambda: shown(running), lambda found: found.get(PROBED, 0) >= 20)
                after = _live(running)
                assert after == before
                assert (
                    metrics['rag_answer_precision{gold="support",pipeline="support",source="probe",window="5m"}'] == 1
                )
                assert metrics['ragmon_accounting_residual{stage="ingest"}'] == 0
            assert running.stop() == 0
        done = ragmon("verify", "--state-dir", tmp_path / "state", "--config", path)
        assert done.code == 0, done.out + done.err


USERS = 'rag_requests_total{pipeline="support",source="live",stratum="rest"}'
PROBED = 'rag_requests_total{pipeline="support",source="probe",stratum="rest"}'
PROBES = 'ragmon_probe_requests_total{probe="support",result="ok"}'


def _live(running):
    """Every series about users: values that move with the clock alone are left out."""
    return {name: value for name, value in shown(running).items() if 'source="live"' in name}
