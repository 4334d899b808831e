"""Whose request it is: pipeline and build are those of the service of the outermost RAG span, whatever came first."""

from __future__ import annotations

from itertools import permutations

import pytest

from ragmon.core import semconv
from ragmon.ingest.trace_buffer import FileTraceBuffer
from tests.support.manual_writer import ManualWriter
from tests.support.otlp_requests import export
from tests.support.recorded_spans import made
from tests.support.serving import journalled

HTTP = {"http.request.method": "POST"}
CHAIN = {semconv.SPAN_KIND: semconv.CHAIN, semconv.INPUT_VALUE: "Is it?", semconv.OUTPUT_VALUE: "So [1]"}
SEARCH = {semconv.SPAN_KIND: semconv.RETRIEVER, "retrieval.documents.0.document.id": "d1"}
MODEL = {semconv.SPAN_KIND: semconv.LLM}
AGENT = {semconv.OPERATION: "invoke_agent", "gen_ai.agent.name": "clerk"}
WEB, RAG, OTHER = ("web", "9.9"), ("trams", "1.4.2"), ("store", None)


def behind_http():
    """A web service calls a RAG service over HTTP."""
    front = made(HTTP, end=10)
    back = made(HTTP, parent=front, start=1, end=9)
    chain = made(CHAIN, parent=back, start=2, end=8)
    return [(WEB, front), (RAG, back), (RAG, chain), (RAG, made(SEARCH, parent=chain, start=3, end=4))], RAG


def remote_agent():
    """The span of a call of an agent, and the agent in its own service."""
    call = made(AGENT, end=10)
    agent = made(AGENT | CHAIN, parent=call, start=1, end=9)
    return [(WEB, call), (RAG, agent), (RAG, made(SEARCH, parent=agent, start=2, end=3))], RAG


def remote_agent_behind_another():
    """An agent that hands on to an agent that hands on."""
    call = made(AGENT, end=10)
    between = made(AGENT, parent=call, start=1, end=9)
    agent = made(AGENT | CHAIN, parent=between, start=2, end=8)
    return [(WEB, call), (OTHER, between), (RAG, agent), (RAG, made(MODEL, parent=agent, start=3, end=4))], RAG


def remote_retriever():
    """An application that answers itself, and searches in another service."""
    chain = made(CHAIN, end=10)
    search = made(SEARCH, parent=chain, start=1, end=2)
    return [(RAG, chain), (OTHER, search), (RAG, made(MODEL, parent=chain, start=3, end=4))], RAG


def remote_parts():
    """A chain whose search and whose model are other services: it is the application."""
    chain = made(CHAIN, end=10)
    return [(RAG, chain), (OTHER, made(SEARCH, parent=chain, start=1, end=2)), (WEB, made(MODEL, parent=chain))], RAG


def without_version():
    """The build of the web service is none of the RAG service."""
    front = made(HTTP, end=10)
    chain = made(CHAIN, parent=front, start=2, end=8)
    return [(WEB, front), (OTHER, chain), (OTHER, made(SEARCH, parent=chain, start=3, end=4))], OTHER


CASES = [behind_http, remote_agent, remote_agent_behind_another, remote_retriever, remote_parts, without_version]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_in_a_file_in_any_order(case):
    for order in permutations(case()[0]):
        buffer = FileTraceBuffer()
        assert not [mapped for (service, build), span in order for mapped in buffer.add(span, service, build)]
        (mapped,) = buffer.end()
        assert (mapped.record.pipeline, mapped.record.build) == case()[1]


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_on_a_server_whatever_request_comes_first(tmp_path, case, backwards):
    spans, expected = case()
    with ManualWriter(tmp_path) as manual:
        shift = int(manual.time.now * 1e9) - max(span.end_ns for _, span in spans)
        for (service, build), span in reversed(spans) if backwards else spans:
            version = {} if build is None else {"service.version": build}
            moved = span._replace(start_ns=span.start_ns + shift, end_ns=span.end_ns + shift)
            manual.send(export([moved], **{"service.name": service}, **version).SerializeToString())
        manual.tick(100)
    (record,) = journalled(tmp_path)
    assert (record.pipeline, record.build) == expected
