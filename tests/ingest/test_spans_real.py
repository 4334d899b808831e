"""Real frameworks under real instrumentations: records say what the frameworks themselves returned.

The runs are in `instrumented_langchain.py` and `instrumented_llama_index.py`; nothing in them needs a network.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

from ragmon.core import constants
from ragmon.core.record import Latency, Record
from ragmon.ingest.spans.mapper import fill, to_record
from ragmon.ingest.spans.span import ATTRIBUTES_DROPPED, CONTENT_NOT_CAPTURED, NOT_RAG, Event, Span, SpanOptions
from tests.support.recorded_spans import SECOND

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "langchain-core": "langchain_core",
    "llama-index-core": "llama_index.core",
    "llama-index-llms-llamafile": "llama_index.llms.llamafile",
    "openinference-instrumentation-langchain": "openinference.instrumentation.langchain",
    "openinference-instrumentation-llama-index": "openinference.instrumentation.llama_index",
    "opentelemetry-instrumentation-langchain": "opentelemetry.instrumentation.langchain",
    "opentelemetry-instrumentation-llamaindex": "opentelemetry.instrumentation.llamaindex",
}
QUESTION = "Who ruled Normandy?"
CLAIM, CITATIONS = "Rollo did", ["n#2", "n#0"]
CONVENTIONS = ("openinference", "openllmetry")
LANGCHAIN = [(convention, "langchain") for convention in CONVENTIONS]
LLAMA_INDEX = [(convention, "llama_index") for convention in CONVENTIONS]
everywhere = pytest.mark.parametrize("setup", [*LANGCHAIN, *LLAMA_INDEX], ids="-".join)
on_langchain = pytest.mark.parametrize("setup", LANGCHAIN, ids="-".join)
on_llama_index = pytest.mark.parametrize("setup", LLAMA_INDEX, ids="-".join)


class Run(NamedTuple):
    """What a framework returned, the spans that were left, all of one trace, and the processor's records."""

    told: dict
    spans: list[Span]
    records: list[dict]

    def record(self, **options):
        mapped = to_record(self.spans, SpanOptions(**options))
        assert mapped.record is not None, mapped.reason
        return mapped.record


@pytest.fixture(scope="module", autouse=True)
def installed():
    """Skips where the frameworks are not installed, and fails where `CI` is set."""
    missing = [name for name, module in PACKAGES.items() if not _is_installed(module)]
    if missing:
        reason = f"not installed: {', '.join(missing)} (they are in the extra `dev`)"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


def _is_installed(module):
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@cache
def runs(setup):
    """The runs of one framework under one instrumentation, by name."""
    return run_program(setup)


def run_program(setup, spans_to=""):
    """The runs of one framework under one instrumentation, whose spans go to a receiver as well."""
    convention, framework = setup
    # The SDK's limits and the instrumentations' switches are read from variables; the runs have none of them.
    foreign = ("OTEL_", "OPENINFERENCE_", "TRACELOOP_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    environment["SPANS_TO"] = spans_to
    program = [sys.executable, "-m", f"tests.support.instrumented_{framework}", convention]
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = {}
    for line in done.stdout.splitlines():
        told = json.loads(line)
        spans = [Span(**(span | {"events": [Event(*event) for event in span["events"]]})) for span in told.pop("spans")]
        assert len({span.trace_id for span in spans}) == 1, "each run leaves one trace"
        found[told.pop("case")] = Run(told, spans, told.pop("records"))
    return found


def assert_answered(record):
    assert (record.q, record.error) == (QUESTION, None)
    assert (record.answer_json.claim, record.answer_json.citations) == (CLAIM, CITATIONS)


@pytest.mark.slow
@everywhere
def test_a_chain_or_query_engine(setup):
    run = runs(setup)["invoke"]
    assert json.loads(run.told["answer"]) == {"claim": CLAIM, "citations": CITATIONS}
    record = run.record()
    assert_answered(record)
    assert record.retrieved_ids == run.told["ids"]
    assert record.contexts == [f"text {name.removeprefix('n#')}" for name in run.told["ids"]]
    assert record.candidate_ids is None
    assert 0 < record.latency_ms.retrieve < record.latency_ms.total
    assert 0 < record.latency_ms.generate < record.latency_ms.total


@pytest.mark.slow
@everywhere
def test_the_processor_in_the_applications_provider_yields_what_the_framework_returned(setup):
    """One record a request, with the ids and the answer of the framework itself."""
    run = runs(setup)["invoke"]
    (record,) = run.records
    assert record["retrieved_ids"] == run.told["ids"]
    assert record["answer_json"] == json.loads(run.told["answer"])
    assert (record["q"], record.get("partial", False)) == (QUESTION, False)


@pytest.mark.slow
@everywhere
def test_ids_from_metadata(setup):
    run = runs(setup)["invoke"]
    assert run.record(id_from=("metadata", "chunk_id")).retrieved_ids == run.told["labels"]


@everywhere
def test_a_streamed_answer(setup):
    """OpenLLMetry never ends the spans around LlamaIndex's streams, so that the answer stays unknown there."""
    run = runs(setup)["stream"]
    if setup == ("openllmetry", "llama_index"):
        mapped = to_record(run.spans)
        assert mapped.record.retrieved_ids == run.told["ids"]
        assert mapped.missing == {"answer_json": CONTENT_NOT_CAPTURED}
    else:
        record = run.record()
        assert_answered(record)
        assert record.retrieved_ids == run.told["ids"]


@everywhere
def test_more_documents_than_a_span_holds_attributes(setup):
    """Flattened lists are cut. Where no whole list stands beside them, the ids are unknown, never the wrong ones."""
    run = runs(setup)["many documents"]
    assert len(run.told["ids"]) == 80
    mapped = to_record(run.spans)
    assert_answered(mapped.record)
    if setup == ("openinference", "langchain"):
        assert any(span.dropped for span in run.spans)
        assert (mapped.record.retrieved_ids, mapped.missing) == (None, {"retrieved_ids": ATTRIBUTES_DROPPED})
    else:
        assert mapped.record.retrieved_ids == run.told["ids"]


@on_llama_index
@pytest.mark.parametrize("name", ["postprocessed", "reranked"])
def test_a_reranker_has_the_last_word_and_leaves_candidates(setup, name):
    """Whether it announces itself to the framework or not."""
    run = runs(setup)[name]
    record = run.record()
    assert_answered(record)
    assert record.candidate_ids == run.told["candidates"]
    assert record.retrieved_ids == run.told["ids"] == run.told["candidates"][::-1][:2]


@on_langchain
def test_a_retriever_that_reranks_what_another_one_finds(setup):
    """OpenLLMetry writes the ids of those documents alone that a later step was given."""
    run = runs(setup)["reranked inside"]
    record = run.record()
    assert_answered(record)
    assert record.retrieved_ids == run.told["ids"] == run.told["candidates"][::-1][:2]
    assert record.candidate_ids == (run.told["candidates"] if setup[0] == "openinference" else None)
    assert len(run.record(id_from=("metadata", "chunk_id")).candidate_ids) == 3


@on_langchain
def test_documents_joined_to_text_before_the_prompt(setup):
    run = runs(setup)["joined text"]
    assert run.record().retrieved_ids == run.told["ids"]


@on_langchain
def test_a_pipeline_that_fails_after_retrieval(setup):
    run = runs(setup)["failure"]
    record = run.record()
    assert (record.error, record.answer_json) == (run.told["error"], None)
    assert (record.q, record.retrieved_ids) == (QUESTION, run.told["ids"])


@everywhere
def test_a_retriever_alone(setup):
    run = runs(setup)["retriever alone"]
    mapped = to_record(run.spans)
    # Nothing around OpenLLMetry's LangChain retriever gives the ids, and its metadata call the documents otherwise.
    expected = run.told["labels" if setup == ("openllmetry", "langchain") else "ids"]
    assert (mapped.record.q, mapped.record.retrieved_ids) == (QUESTION, expected)
    assert mapped.missing == {"answer_json": constants.NO_ANSWER}


@on_llama_index
def test_building_an_index_is_no_request(setup):
    assert to_record(runs(setup)["index building"].spans).reason == NOT_RAG


@everywhere
def test_hidden_content_is_unknown_and_says_why(setup):
    """OpenInference hides texts, not LlamaIndex's ids; its LangChain ids lie in a hidden text."""
    mapped = to_record(runs(setup)["hidden content"].spans)
    record = mapped.record
    assert (record.q, record.answer_json, record.contexts) == (None, None, None)
    expected = dict.fromkeys(("q", "retrieved_ids", "answer_json"), CONTENT_NOT_CAPTURED)
    if setup == ("openinference", "llama_index"):
        assert record.retrieved_ids == runs(setup)["invoke"].told["ids"]
        del expected["retrieved_ids"]
    assert mapped.missing == expected


@everywhere
def test_what_a_decorated_endpoint_did_not_see_is_filled_in(setup):
    """One decorator on a streaming endpoint, its retriever and model under another instrumentation."""
    run = runs(setup)["invoke"]
    ended = max(span.end_ns for span in run.spans) / SECOND
    seen = Record(v=1, trace_id=run.spans[0].trace_id, ts=ended, pipeline="support", latency_ms=Latency(total=1234.5))
    record = fill(seen, run.spans)
    assert_answered(record)
    assert record.retrieved_ids == run.told["ids"]
    assert (record.pipeline, record.latency_ms.total) == ("support", 1234.5)
    assert record.latency_ms.retrieve > 0
