"""The combinations of a framework and an instrumentation that are recorded: the rows of the matrix.

Standard library only: the programs import it in the environments of the frameworks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

MARK: Final = "RECORDED "
"""The start of the lines that are reports of a program; frameworks print much else."""


class Combination(NamedTuple):
    """One row of the matrix.

    Attributes:
        title: What the row is called: the framework, and whose instrumentation.
        program: The module in `tests.support.programs` and its function; or a file that `node` runs.
        tracer: The instrumentation, a name of `tests.support.programs.tracers`.
        packages: What pip or npm installs; the row shows their versions.
        arguments: Further arguments of the program.
        setting: What a user sets for it, in Markdown: variables of the instrumentation, keys of ragmon.toml.
        environment: The variables in `setting`.
        options: The options of spans that the keys of ragmon.toml in `setting` stand for.
        has_session: Whether users of the instrumentation can set a session.
        also: What pip installs beside the packages, for the program's sake.
    """

    title: str
    program: str
    tracer: str
    packages: tuple[str, ...]
    arguments: tuple[str, ...] = ()
    setting: str = ""
    environment: Mapping[str, str] = {}
    options: Mapping[str, Any] = {}
    has_session: bool = True
    also: tuple[str, ...] = ()


_MODEL: Final = ("langchain-openai",)
_AGENT: Final = ("langgraph", "langchain-openai")
_OI_LANGCHAIN: Final = "openinference-instrumentation-langchain"
_OLM_LANGCHAIN: Final = "opentelemetry-instrumentation-langchain"

COMBINATIONS: Final[dict[str, Combination]] = {
    "langchain-openinference": Combination(
        "LangChain LCEL, OpenInference",
        "langchain:lcel",
        "openinference",
        ("langchain-core", _OI_LANGCHAIN),
        also=_MODEL,
    ),
    "langchain-openllmetry": Combination(
        "LangChain LCEL, OpenLLMetry",
        "langchain:lcel",
        "openllmetry",
        ("langchain-core", _OLM_LANGCHAIN),
        also=_MODEL,
    ),
    "langgraph-openinference": Combination(
        "LangGraph, a graph of functions, OpenInference",
        "langchain:search_graph",
        "openinference",
        ("langgraph", _OI_LANGCHAIN),
        also=_MODEL,
    ),
    "langchain-agent-openinference": Combination(
        "LangChain `create_agent`, a tool with an artifact, OpenInference",
        "langchain:agent",
        "openinference",
        ("langchain", _OI_LANGCHAIN),
        also=_AGENT,
    ),
    "vercel": Combination(
        "Vercel AI SDK 6, a tool that retrieves",
        "instrumented_vercel.mjs",
        "node",
        ("ai", "@opentelemetry/sdk-trace-node"),
        setting="`experimental_telemetry: { isEnabled: true }`",
    ),
    "vercel7": Combination(
        "Vercel AI SDK 7, a tool that retrieves",
        "instrumented_vercel7.mjs",
        "node",
        ("ai", "@ai-sdk/otel"),
        setting="`new OpenTelemetry({ runtimeContext: true })`, "
        "`telemetry: { includeRuntimeContext: { sessionId: true } }`",
    ),
}
"""The rows by the name of their recording, in the order of the matrix."""
