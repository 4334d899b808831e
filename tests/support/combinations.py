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
_OI_LANGCHAIN_JS: Final = "@arizeai/openinference-instrumentation-langchain"
_LANGCHAIN_JS: Final = {
    "lcel": "LCEL",
    "graph": "LangGraph, nodes `retrieve` and `generate`",
    "agent": "`createAgent`, a tool with an artifact",
}
_LLAMA: Final = ("llama-index-llms-openai-like",)
_CONTENT: Final = {
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
}
_CONTENT_SETTING: Final = ", ".join(f"`{name}={value}`" for name, value in _CONTENT.items())

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
    "openai-v2": Combination(
        "OpenAI's SDK and an own search, OpenTelemetry's `openai-v2`",
        "sdks:openai",
        "contrib",
        ("openai", "opentelemetry-instrumentation-openai-v2"),
        also=("httpx<1", "wrapt<2"),
        setting="`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`",
        environment={"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
        has_session=False,
    ),
    "anthropic-openinference": Combination(
        "Anthropic's SDK, an own search and an own span, OpenInference",
        "sdks:anthropic",
        "openinference",
        ("anthropic", "openinference-instrumentation-anthropic"),
    ),
    "anthropic-openllmetry": Combination(
        "Anthropic's SDK, an own search and an own span, OpenLLMetry",
        "sdks:anthropic",
        "openllmetry",
        ("anthropic", "opentelemetry-instrumentation-anthropic"),
    ),
    "bedrock-openinference": Combination(
        "Bedrock's `converse` and an own search, OpenInference",
        "sdks:bedrock",
        "openinference",
        ("boto3", "openinference-instrumentation-bedrock"),
    ),
    "bedrock-botocore": Combination(
        "Bedrock's `converse` and an own search, OpenTelemetry's `botocore`",
        "sdks:bedrock",
        "contrib",
        ("boto3", "opentelemetry-instrumentation-botocore"),
        setting="`OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true`",
        environment={"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"},
        has_session=False,
    ),
    "google-genai-tool-openinference": Combination(
        "Google GenAI, a function that the SDK calls, OpenInference",
        "sdks:google_genai",
        "openinference",
        ("google-genai", "openinference-instrumentation-google-genai"),
        ("tool",),
    ),
    "google-genai-openinference": Combination(
        "Google GenAI and an own search, OpenInference",
        "sdks:google_genai",
        "openinference",
        ("google-genai", "openinference-instrumentation-google-genai"),
    ),
    **{
        f"google-genai{name}-contrib": Combination(
            f"Google GenAI{what}, OpenTelemetry's own",
            "sdks:google_genai",
            "contrib",
            ("google-genai<3", "opentelemetry-instrumentation-google-genai"),
            tuple(arguments),
            setting=_CONTENT_SETTING,
            environment=_CONTENT,
            has_session=False,
        )
        for name, what, *arguments in (("", " and an own search"), ("-tool", ", a function that the SDK calls", "tool"))
    },
    **{
        f"{store}-openllmetry": Combination(
            f"{title} and OpenAI's SDK, an own span, OpenLLMetry",
            "sdks:vectors",
            "openllmetry",
            (package, instrumentation, "opentelemetry-instrumentation-openai"),
            (store,),
            also=("openai", *also),
        )
        for store, title, package, instrumentation, *also in (
            ("chroma", "Chroma", "chromadb", "opentelemetry-instrumentation-chromadb"),
            ("qdrant", "Qdrant", "qdrant-client", "opentelemetry-instrumentation-qdrant"),
            ("milvus", "Milvus Lite", "pymilvus", "opentelemetry-instrumentation-milvus", "milvus-lite"),
            ("lancedb", "LanceDB", "lancedb", "opentelemetry-instrumentation-lancedb"),
        )
    },
    "langchain-agent-both": Combination(
        "LangChain `create_agent`, a tool with an artifact, OpenInference and OpenLLMetry at once",
        "langchain:agent",
        "openinference",
        ("langchain", _OI_LANGCHAIN, _OLM_LANGCHAIN),
        also=_AGENT,
    ),
    **{
        f"langchain-fastapi-{name}": Combination(
            f"LangChain LCEL behind FastAPI, OpenTelemetry's `fastapi` and {whose}",
            "apps:fastapi",
            tracer,
            ("langchain-core", *instrumentations, "fastapi"),
            also=("langchain", "opentelemetry-instrumentation-fastapi", "uvicorn", *_MODEL),
        )
        for name, whose, tracer, *instrumentations in (
            ("openinference", "OpenInference", "openinference", _OI_LANGCHAIN),
            ("openllmetry", "OpenLLMetry", "openllmetry", _OLM_LANGCHAIN),
            ("both", "OpenInference and OpenLLMetry at once", "openinference", _OI_LANGCHAIN, _OLM_LANGCHAIN),
        )
    },
    "langchain-traceloop": Combination(
        "LangChain LCEL, Traceloop's SDK",
        "langchain:lcel",
        "traceloop",
        ("langchain", "traceloop-sdk"),
        also=_MODEL,
    ),
    "langchain-agent-traceloop": Combination(
        "LangChain `create_agent`, a tool with an artifact, Traceloop's SDK",
        "langchain:agent",
        "traceloop",
        ("langchain", "traceloop-sdk"),
        also=_AGENT,
    ),
    "llama-index-otel": Combination(
        "LlamaIndex query engine, its own `LlamaIndexOpenTelemetry`",
        "llama_index:query_engine",
        "llamaindexotel",
        ("llama-index-core", "llama-index-observability-otel"),
        has_session=False,
        also=_LLAMA,
    ),
    **{
        f"{name}-mlflow": Combination(
            f"{what}, MLflow's `autolog`",
            program,
            "mlflow",
            (package, "mlflow"),
            has_session=False,
            also=also,
        )
        for name, what, program, package, also in (
            ("llama-index", "LlamaIndex query engine", "llama_index:query_engine", "llama-index-core", _LLAMA),
            ("openai-agents", "OpenAI Agents SDK", "agents:openai_agents", "openai-agents", ()),
            ("pydantic-ai", "Pydantic AI", "agents:pydantic_ai", "pydantic-ai-slim", ("openai",)),
        )
    },
    **{
        f"{name}-openinference": Combination(
            f"{what}, OpenInference",
            program,
            "openinference",
            (package, f"openinference-instrumentation-{instrumented}"),
            also=also,
        )
        for name, what, program, package, instrumented, *also in (
            ("mistral", "Mistral's SDK and an own search", "clients:mistral", "mistralai", "mistralai"),
            ("groq", "Groq's SDK and an own search", "clients:groq", "groq", "groq"),
            ("instructor", "Instructor and an own search", "clients:instructor", "instructor", "instructor", "openai"),
            ("litellm", "LiteLLM and an own search", "clients:litellm", "litellm", "litellm"),
            ("google-adk", "Google ADK", "agents:adk", "google-adk", "google-adk"),
        )
    },
    "trulens": Combination(
        "OpenAI's SDK, TruLens's `TruApp` and `@instrument`",
        "apps:trulens",
        "trulens",
        ("openai", "trulens-core"),
        setting='`TruSession(otel_exporter="otlp", otlp_protocol="http/protobuf")`',
        also=("trulens-otel-semconv",),
    ),
    **{
        f"vercel{name}": Combination(
            f"Vercel AI SDK {version}, {what}",
            "vercel.mjs",
            "sdk",
            (f"ai@{version}", "@opentelemetry/sdk-trace-node"),
            (kind,),
            setting="`experimental_telemetry: { isEnabled: true }`",
            also=(f"@ai-sdk/openai@{provider}", f"zod@{zod}"),
        )
        for name, what, kind, version, provider, zod in (
            ("", "a tool that retrieves", "tool", 6, 3, 4),
            ("5-stream", "`streamText` with a tool that retrieves", "streamed", 5, 2, 3),
            ("5-prompt", "the documents in the prompt", "prompt", 5, 2, 3),
        )
    },
    "vercel7": Combination(
        "Vercel AI SDK 7, a tool that retrieves",
        "vercel.mjs",
        "otel",
        ("ai@7", "@ai-sdk/otel"),
        ("tool",),
        setting="`new OpenTelemetry({ runtimeContext: true })`, "
        "`telemetry: { includeRuntimeContext: { sessionId: true } }`",
        also=("@ai-sdk/openai@4", "zod"),
    ),
    **{
        f"langchain-js-{kind}-{tracer}": Combination(
            f"LangChain.js {_LANGCHAIN_JS[kind]}, {whose}",
            "langchain.mjs",
            tracer,
            ("langchain", package),
            (kind,),
            also=("@langchain/core", "@langchain/openai", "zod", *also),
        )
        for kind, tracer, whose, package, *also in (
            ("lcel", "openinference", "OpenInference", _OI_LANGCHAIN_JS),
            ("graph", "openinference", "OpenInference", _OI_LANGCHAIN_JS),
            ("agent", "openinference", "OpenInference", _OI_LANGCHAIN_JS),
            ("lcel", "langfuse", "Langfuse", "@langfuse/langchain", "@langfuse/otel"),
            ("graph", "langfuse", "Langfuse", "@langfuse/langchain", "@langfuse/otel"),
            ("agent", "langfuse", "Langfuse", "@langfuse/langchain", "@langfuse/otel"),
        )
    },
    **{
        f"openai-js-{tracer}": Combination(
            f"OpenAI's SDK in JavaScript, {whose}",
            "openai.mjs",
            tracer,
            ("openai", package),
            also=also,
        )
        for tracer, whose, package, *also in (
            (
                "openinference",
                "OpenInference and its `withSpan`",
                "@arizeai/openinference-instrumentation-openai",
                "@arizeai/openinference-core",
            ),
            ("traceloop", "Traceloop's `withWorkflow` and `withTask`", "@traceloop/node-server-sdk"),
            ("langfuse", "Langfuse's `observe`", "@langfuse/openai", "@langfuse/otel", "@langfuse/tracing"),
        )
    },
    "mastra": Combination(
        "Mastra agent, a tool that returns objects, its own",
        "mastra.mjs",
        "otel",
        ("@mastra/core", "@mastra/otel-exporter"),
        also=("@mastra/observability", "@ai-sdk/openai", "zod", "node"),
    ),
}
"""The rows by the name of their recording, in the order of the matrix."""
