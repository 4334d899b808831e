"""The matrix of instrumentations says what becomes of real spans, and the installed packages still write such spans."""

from __future__ import annotations

import sys

import pytest

from ragmon.core import semconv
from tests.support import instrumentation_table as made
from tests.support import record_agents
from tests.support.combinations import COMBINATIONS
from tests.support.recorded_agents import NAMES, AskedQuestion, questions

LIVE = (
    *("langchain-openinference", "langchain-openllmetry", "langgraph-openinference", "langgraph-openllmetry"),
    *("llama-index-openinference", "llama-index-citation-openinference", "llama-index-reranked-openinference"),
    *("haystack", "haystack-openinference", "haystack-agent"),
    *("openai-openinference", "openai-openllmetry", "openai-langfuse-decorators", "mlflow-tracing-decorators"),
    "pydantic-ai-1",
)
"""The rows whose packages are installed for the tests."""
IN_TITLES = {
    semconv.GENAI: ("OpenTelemetry's", "AG2", "Anthropic's SDK"),  # the SDK's own spans, each a trace of its own
    semconv.OPENINFERENCE: ("OpenInference", "Phoenix"),
    semconv.OPENLLMETRY: ("OpenLLMetry", "Traceloop"),
    semconv.MLFLOW: ("MLflow", "mlflow"),
}
"""What the titles of rows call an instrumentation, where it is not its name."""


def test_the_page_has_the_matrix_that_the_recordings_make():
    """`python -m tests.support.instrumentation_table` writes it anew."""
    assert made.PAGE.read_text(encoding="utf-8") == made.page()


def test_every_recording_has_a_row():
    assert set(NAMES) == set(COMBINATIONS)


@pytest.mark.parametrize("name", NAMES)
def test_records_say_which_instrumentation_of_the_program_wrote_their_spans(name):
    """Hints name its switch."""
    title, options = COMBINATIONS[name].title, made.options_of(name)
    told = {record.instrumentation for asked in questions(name) for record in asked.records(options)}
    assert [each for each in told if not any(word in title for word in IN_TITLES.get(each, (each,)))] == []
    if "OpenLLMetry" in title and "OpenInference" not in title:
        assert semconv.OPENLLMETRY in told


@pytest.mark.slow
@pytest.mark.parametrize("name", LIVE)
def test_the_installed_packages_leave_what_the_row_says(name):
    """The program of the row runs anew, against a model on loopback."""
    lines = record_agents.run(name, sys.executable)
    asked, options = [AskedQuestion(**line) for line in lines], made.options_of(name)
    assert made.cells(asked, options) == made.cells(questions(name), options)
