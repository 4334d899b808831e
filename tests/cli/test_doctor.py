"""`ragmon doctor` without a server: capture is really tried, what is wrong is named, and what is lost or found is said.

The chain to a server is in test_doctor_chain.py.
"""

from __future__ import annotations

import json
import random
import re
from importlib import metadata

import pytest
from openinference.instrumentation import TraceConfig
from openinference.instrumentation import config as openinference
from opentelemetry.instrumentation.langchain.utils import should_send_prompts
from opentelemetry.sdk.trace import SpanLimits, TracerProvider, sampling

from ragmon.cli.doctor_checks import CAPTURE, HIDDEN, LIMITS, OPT_IN, Instrumentation, limits, samplers
from ragmon.cli.doctor_checks import instrumentations as found_in
from ragmon.config.load import defaults, load
from tests.support.command_line import ragmon

GOLD = '{"qid":"A1","question":"Does X support null keys?","answerable":false}\n'


def lines(done):
    return {line.split()[0]: line for line in done.out.splitlines() if line}


@pytest.mark.slow
def test_without_a_configuration_the_defaults_are_tried(tmp_path):
    done = ragmon("doctor", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    found = lines(done)
    assert found["config"] == "config    ok    no ragmon.toml, the defaults are in force"
    assert "none: only label-free metrics are counted" in found["gold"]
    assert "learned from traffic" in found["baseline"]
    told = r"a call was captured and scored here, and is one of \d+ lines of /metrics"
    assert re.fullmatch(rf"capture +ok +{told}", found["capture"])
    assert "endpoint" not in found


@pytest.mark.slow
def test_it_says_how_long_each_gate_takes_to_raise_an_alarm(tmp_path):
    """By rate; a gate that is asked to find what lies next to it says never."""
    toml = '[gates.precision]\nmetric = "answer_precision"\nat_least = 0.8\npage_below = 0.7\n'
    (tmp_path / "ragmon.toml").write_text(f"{toml}[gates.mrr]\nat_least = 0.8\npage_below = 0.7999\n")
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 0
    assert lines(done)["gate"].split() == ["gate", "holds", "goes", "to", "1/min", "10/min", "100/min"]
    gate, sign, bar, level, *times = lines(done)["precision"].split(maxsplit=4)
    assert (gate, sign, bar, level) == ("precision", ">=", "0.8", "0.7")
    assert re.fullmatch(r"\d\.\d h +\d+ min +\d min", times[0])
    assert lines(done)["mrr"].split()[-3:] == ["never"] * 3
    (row,) = (line for line in ragmon("doctor", "--rate", "1", cwd=tmp_path).out.splitlines() if "precision" in line)
    assert row.split()[-2:] == times[0].split()[:2]


@pytest.mark.slow
def test_a_broken_configuration_is_named_line_by_line(tmp_path):
    (tmp_path / "ragmon.toml").write_text("[sampling]\nrate = 7\n")
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 1
    assert "ragmon.toml:2" in done.out


@pytest.mark.slow
def test_broken_gold_and_a_changed_baseline_are_named_and_the_rest_is_still_tried(tmp_path):
    (tmp_path / "gold.jsonl").write_text('{"qid": 1}\n')
    frozen = {"kind": "ragmon-baseline", "v": 1, "version": "00000000", "pipelines": {}}
    (tmp_path / "baseline.json").write_text(json.dumps(frozen))
    toml = '[gold.support]\npath = "gold.jsonl"\n[alarms]\nbaseline = { file = "baseline.json" }\n'
    (tmp_path / "ragmon.toml").write_text(toml)
    done = ragmon("doctor", cwd=tmp_path)
    assert done.code == 1
    found = lines(done)
    assert re.match(r"gold +bad +.*gold.jsonl:1", found["gold"])
    assert re.match(r"baseline +bad +.*the baseline was changed after it was frozen: '00000000'", found["baseline"])
    assert "hint: write it with `ragmon baseline freeze" in done.out


@pytest.mark.slow
def test_gold_is_counted(tmp_path):
    (tmp_path / "gold.jsonl").write_text(GOLD)
    (tmp_path / "ragmon.toml").write_text('[gold.support]\npath = "gold.jsonl"\n')
    done = ragmon("doctor", cwd=tmp_path)
    assert re.match(r"gold +ok +support [0-9a-f]{8} with 1 items", lines(done)["gold"])


@pytest.mark.slow
def test_a_switched_off_ragmon_is_named(tmp_path):
    done = ragmon("doctor", cwd=tmp_path, env={"RAGMON_DISABLED": "1"})
    assert done.code == 1
    assert re.match(r"capture +bad +nothing is captured", lines(done)["capture"])


GENAI = {CAPTURE: "SPAN_ONLY", OPT_IN: "http,gen_ai_latest_experimental"}


@pytest.fixture
def installed(tmp_path):
    """Makes packages as an installer leaves them, and returns what is found of them."""

    def install(*packages):
        for name, *needs in packages:
            folder = tmp_path / f"{name.replace('-', '_')}-1.0.dist-info"
            folder.mkdir(exist_ok=True)
            wants = "".join(f"Requires-Dist: {need}\n" for need in needs)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{wants}")
        return list(metadata.distributions(path=[str(tmp_path)]))

    return install


ALL = (
    ("opentelemetry-instrumentation-genai-langchain", "opentelemetry-util-genai>=1.3b0"),
    ("opentelemetry-instrumentation-langchain", "opentelemetry_semantic_conventions_ai<0.6"),
    ("openinference-instrumentation-langchain", "openinference-instrumentation"),
)
QUIET = ("opentelemetry-util-genai", "openinference-instrumentation", "opentelemetry-instrumentation-requests", "flask")


def told(environ, packages, settings=None):
    """What is said of each instrumentation."""
    return {one.name: one for one in found_in(settings or defaults(), environ, packages)}


def test_what_is_installed_is_told_apart_by_what_it_is_made_with(installed):
    """The official instrumentation of LangChain and OpenLLMetry's differ in nothing else."""
    packages = installed(*ALL, *((name,) for name in QUIET))
    assert {name: one.packages for name, one in told(GENAI, packages).items() if one.packages} == {
        "OpenTelemetry GenAI": ("opentelemetry-instrumentation-genai-langchain",),
        "OpenLLMetry": ("opentelemetry-instrumentation-langchain",),
        "OpenInference": ("openinference-instrumentation-langchain",),
    }


def test_where_nothing_is_installed_nothing_is_said(installed):
    assert found_in(defaults(), {"OTEL_TRACES_SAMPLER": "always_off"}, installed(*((name,) for name in QUIET))) == []


@pytest.mark.parametrize(
    ("environ", "lost"),
    [
        (GENAI, ""),
        (GENAI | {CAPTURE: "span_and_event"}, ""),
        ({}, f"{CAPTURE} is not set: no question, ids or answer arrive: unscorable"),
        (GENAI | {CAPTURE: "EVENT_ONLY"}, "captures nothing on spans"),
        (GENAI | {CAPTURE: "true"}, "captures nothing on spans"),
        (GENAI | {OPT_IN: "http"}, "versions that ask for it send no question, ids or answer"),
    ],
)
def test_opentelemetry_captures_content_where_it_is_asked_to(installed, environ, lost):
    found = told(environ, installed(ALL[0]))["OpenTelemetry GenAI"]
    assert (lost in found.loss) if lost else not found.loss
    assert bool(found.hint) is bool(lost)


@pytest.mark.parametrize("value", [None, "", "true", "TRUE", "false", "False", "0", "no", "1", " true"])
def test_openllmetry_captures_content_where_its_own_code_says_so(installed, monkeypatch, value):
    monkeypatch.delenv("TRACELOOP_TRACE_CONTENT", raising=False)
    if value is not None:
        monkeypatch.setenv("TRACELOOP_TRACE_CONTENT", value)
    found = told(None, installed(ALL[1]))["OpenLLMetry"]
    assert bool(found.loss) is not bool(should_send_prompts())
    if found.loss:
        assert "no question, ids or answer arrive: unscorable" in found.loss


HIDES = {
    "OPENINFERENCE_HIDE_INPUTS": "input.value",
    "OPENINFERENCE_HIDE_OUTPUTS": "output.value",
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": "llm.input_messages.0.message.content",
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": "llm.output_messages.0.message.content",
    "OPENINFERENCE_HIDE_INPUT_TEXT": "llm.input_messages.0.message.content",
    "OPENINFERENCE_HIDE_OUTPUT_TEXT": "llm.output_messages.0.message.content",
    "OPENINFERENCE_HIDE_PROMPTS": "llm.prompts.0.prompt.text",
    "OPENINFERENCE_HIDE_CHOICES": "llm.choices.0.completion.text",
    "OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS": "retrieval.documents.0.document.content",
}


@pytest.mark.parametrize("value", ["true", "True", "false", "1", ""])
@pytest.mark.parametrize("switch", HIDDEN)
def test_openinference_hides_what_its_own_code_says(installed, monkeypatch, switch, value):
    monkeypatch.setenv(switch, value)
    hidden = TraceConfig().mask(HIDES[switch], "text") != "text"
    found = told(None, installed(ALL[2]))["OpenInference"]
    assert (f"{switch}=true hides" in found.loss) is hidden
    assert found.hint == (f"unset {switch}" if hidden else "")


def test_every_switch_of_openinference_that_hides_text_is_known():
    switches = {value for name, value in vars(openinference).items() if name.startswith("OPENINFERENCE_HIDE_")}
    unread = ("LLM_INVOCATION_PARAMETERS", "LLM_TOOLS", "INPUT_IMAGES")
    embeddings = ("EMBEDDING_VECTORS", "EMBEDDINGS_VECTORS", "EMBEDDINGS_TEXT")
    assert switches - {f"OPENINFERENCE_HIDE_{name}" for name in unread + embeddings} == set(HIDDEN)


@pytest.mark.parametrize(
    "environ", [{}, {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "64"}, {"OTEL_ATTRIBUTE_COUNT_LIMIT": "40"}]
)
def test_as_many_documents_as_are_said_fit_on_a_span_and_twice_as_many_do_not(monkeypatch, environ):
    """On the SDK's own spans: past the limit the attributes that were set first are thrown away."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    found = limits(defaults(), environ, flattened=True)
    (documents,) = map(int, re.findall(r"about (\d+) documents", found.loss or found.note))
    for many, kept in {documents: True, 2 * documents: False}.items():
        span = TracerProvider(span_limits=SpanLimits()).get_tracer("t").start_span("retrieve")
        for n in range(8):
            span.set_attribute(f"other.{n}", n)
        for n in range(many):
            for field in ("id", "content", "score", "metadata"):
                span.set_attribute(f"retrieval.documents.{n}.document.{field}", "x")
        span.end()
        assert ("retrieval.documents.0.document.id" in span.attributes and "other.0" in span.attributes) is kept


def test_a_limit_that_cuts_into_what_metrics_look_at_loses_and_another_is_worth_a_word():
    assert (
        "of more than about 6 documents"
        in limits(defaults(), {"OTEL_ATTRIBUTE_COUNT_LIMIT": "32"}, flattened=True).loss
    )
    usual = limits(defaults(), {}, flattened=True)
    assert (usual.loss, "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT is not set, which means 128" in usual.note) == ("", True)


def test_one_attribute_for_all_documents_or_no_limit_loses_none():
    assert limits(defaults(), {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "32"}, flattened=False) == Instrumentation(LIMITS)
    assert limits(defaults(), {"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "unset"}, flattened=True) == Instrumentation(LIMITS)


def test_a_short_limit_on_the_length_of_values_loses_text():
    found = limits(defaults(), {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "512"}, flattened=False)
    assert found.loss == "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=512 cuts questions, answers and lists of documents"
    assert limits(defaults(), {"OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "100000"}, flattened=False) == Instrumentation(
        LIMITS
    )


@pytest.mark.slow
@pytest.mark.parametrize("rate", ["0.25", "1", "0", "", "half", "7", None])
@pytest.mark.parametrize("sampler", ["traceidratio", "parentbased_traceidratio", "parentbased_always_on", "ALWAYS_OFF"])
def test_what_a_sampler_keeps_is_what_the_sdk_keeps(monkeypatch, sampler, rate):
    environ = {"OTEL_TRACES_SAMPLER": sampler, **({} if rate is None else {"OTEL_TRACES_SAMPLER_ARG": rate})}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    draw, made = random.Random(3), sampling._get_from_env_or_default()
    decisions = [made.should_sample(None, draw.getrandbits(128), "request").decision for _ in range(4000)]
    kept = sum(decision.is_sampled() for decision in decisions) / len(decisions)
    found = samplers(defaults(), environ)
    told = re.search(r"keeps ([\d.]+|none)", found.loss + found.note)
    stated = 1.0 if told is None else 0.0 if told[1] == "none" else float(told[1])
    assert bool(found.loss) is (kept == 0)
    assert kept == pytest.approx(stated, abs=0.03)


def test_two_draws_that_know_nothing_of_each_other_multiply(tmp_path):
    (tmp_path / "ragmon.toml").write_text("[sampling]\nrate = 0.5\n")
    settings = load(tmp_path / "ragmon.toml", environ={})
    found = samplers(settings, {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.25"})
    assert "with `[sampling] rate` 0.5 on top 0.125 of them are scored" in found.note


@pytest.mark.slow
def test_what_is_lost_of_spans_is_printed_and_is_no_fault(tmp_path):
    done = ragmon("doctor", cwd=tmp_path, env={"TRACELOOP_TRACE_CONTENT": "false"})
    assert done.code == 0
    assert "OpenLLMetry: TRACELOOP_TRACE_CONTENT='false': no question, ids or answer arrive: unscorable" in done.out
    assert "OpenInference: nothing\n" in done.out
