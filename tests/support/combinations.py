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

_TRACELOOP: Final = ("traceloop-sdk",)
_LLAMA_MODEL: Final = ("llama-index-llms-openai-like",)
_LANGSMITH: Final = {
    "LANGSMITH_OTEL_ENABLED": "true",
    "LANGSMITH_TRACING": "true",
    "LANGSMITH_API_KEY": "unused",
    "LANGSMITH_OTEL_ONLY": "true",
    "LANGSMITH_ENDPOINT": "http://127.0.0.1:9",
}

_OI_LANGCHAIN_JS: Final = "@arizeai/openinference-instrumentation-langchain"
_LANGCHAIN_JS: Final = {
    "lcel": "LCEL",
    "graph": "LangGraph, nodes `retrieve` and `generate`",
    "agent": "`createAgent`, a tool with an artifact",
}

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
    "langchain-0.3-openinference": Combination(
        "LangChain 0.3 LCEL, OpenInference 0.1.29",
        "langchain:lcel",
        "openinference",
        ("langchain-core==0.3.86", f"{_OI_LANGCHAIN}==0.1.29"),
        also=("langchain-openai<1", "wrapt<2"),
    ),
    "langchain-openllmetry": Combination(
        "LangChain LCEL, OpenLLMetry",
        "langchain:lcel",
        "openllmetry",
        ("langchain-core", _OLM_LANGCHAIN),
        also=_MODEL,
    ),
    "langchain-langfuse": Combination(
        "LangChain LCEL, Langfuse's callback",
        "langchain:lcel",
        "langfuse",
        ("langchain", "langfuse"),
        also=_MODEL,
    ),
    "langchain-openlit": Combination(
        "LangChain LCEL, OpenLIT",
        "langchain:lcel",
        "openlit",
        ("langchain-core", "openlit"),
        also=(*_MODEL, "opentelemetry-sdk<1.42"),
    ),
    "langchain-langsmith": Combination(
        "LangChain LCEL, LangSmith's OpenTelemetry export",
        "langchain:lcel",
        "langsmith",
        ("langchain-core", "langsmith[otel]"),
        setting="`LANGSMITH_OTEL_ENABLED=true`, `LANGSMITH_TRACING=true`",
        environment=_LANGSMITH,
        also=_MODEL,
    ),
    "langchain-mlflow": Combination(
        "LangChain LCEL, MLflow's `autolog`",
        "langchain:lcel",
        "mlflow",
        ("langchain", "mlflow"),
        setting="`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`",
        also=_MODEL,
    ),
    "langchain-reranker-openinference": Combination(
        "LangChain compression retriever with a reranker, OpenInference",
        "langchain:reranked",
        "openinference",
        ("langchain-classic", _OI_LANGCHAIN),
        also=_MODEL,
    ),
    "langgraph-openinference": Combination(
        "LangGraph, nodes `retrieve` and `generate`, OpenInference",
        "langchain:graph",
        "openinference",
        ("langgraph", _OI_LANGCHAIN),
        also=_MODEL,
    ),
    "langgraph-openllmetry": Combination(
        "LangGraph, nodes `retrieve` and `generate`, OpenLLMetry",
        "langchain:graph",
        "openllmetry",
        ("langgraph", _OLM_LANGCHAIN),
        also=_MODEL,
    ),
    **{
        f"langchain-agent-{tracer}": Combination(
            f"LangChain `create_agent`, a tool with an artifact, {whose}",
            "langchain:agent",
            tracer,
            ("langchain", package),
            setting="`LANGSMITH_OTEL_ENABLED=true`, `LANGSMITH_TRACING=true`" if tracer == "langsmith" else "",
            environment=_LANGSMITH if tracer == "langsmith" else {},
            also=_AGENT,
        )
        for tracer, whose, package in (
            ("openinference", "OpenInference", _OI_LANGCHAIN),
            ("openllmetry", "OpenLLMetry", _OLM_LANGCHAIN),
            ("langfuse", "Langfuse's callback", "langfuse"),
            ("mlflow", "MLflow's `autolog`", "mlflow"),
            ("langsmith", "LangSmith's OpenTelemetry export", "langsmith[otel]"),
        )
    },
    **{
        f"langchain-agent-{kind}-openinference": Combination(
            f"LangChain `create_agent`, {what}, OpenInference",
            "langchain:agent",
            "openinference",
            ("langchain", _OI_LANGCHAIN),
            (kind,),
            also=_AGENT,
        )
        for kind, what in (
            ("retriever", "`create_retriever_tool`"),
            ("dicts", "a tool that returns dicts"),
            ("structured", "`create_retriever_tool` and `response_format`"),
        )
    },
    **{
        f"llama-index{name}-openinference": Combination(
            f"LlamaIndex {what}, OpenInference",
            f"llama_index:{program}",
            "openinference",
            ("llama-index-core", "openinference-instrumentation-llama-index"),
            tuple(arguments),
            also=_LLAMA_MODEL,
        )
        for name, what, program, *arguments in (
            ("", "query engine", "query_engine"),
            ("-reranked", "query engine with a postprocessor", "query_engine", "reranked"),
            ("-citation", "`CitationQueryEngine`", "query_engine", "citation"),
            ("-chat", "`ContextChatEngine`", "chat_engine"),
            ("-agent", "`FunctionAgent` with a `RetrieverTool`", "agent"),
            ("-agent-dicts", "`FunctionAgent`, a tool that returns dicts", "agent", "dicts"),
        )
    },
    "llama-index-0.12-openinference": Combination(
        "LlamaIndex 0.12 query engine, OpenInference 4.2",
        "llama_index:query_engine",
        "openinference",
        ("llama-index-core==0.12.30", "openinference-instrumentation-llama-index==4.2.1"),
        also=("llama-index-llms-openai-like<0.4", "openai<1.80", "wrapt<2"),
    ),
    **{
        f"llama-index{name}-openllmetry": Combination(
            f"LlamaIndex {what}, OpenLLMetry",
            f"llama_index:{program}",
            tracer,
            ("llama-index-core", "opentelemetry-instrumentation-llamaindex"),
            tuple(arguments),
            has_session=tracer == "traceloop",
            also=(*_LLAMA_MODEL, *_TRACELOOP),
        )
        for name, what, tracer, program, *arguments in (
            ("", "query engine", "openllmetry", "query_engine"),
            ("-citation", "`CitationQueryEngine`", "traceloop", "query_engine", "citation"),
            ("-agent", "`FunctionAgent` with a `RetrieverTool`", "traceloop", "agent"),
        )
    },
    "haystack": Combination(
        "Haystack pipeline, its own tracer",
        "haystack:pipeline",
        "sdk",
        ("haystack-ai", "opentelemetry-haystack"),
        ("own",),
        setting="`HAYSTACK_CONTENT_TRACING_ENABLED=true`",
        has_session=False,
    ),
    "haystack-openinference": Combination(
        "Haystack pipeline, OpenInference",
        "haystack:pipeline",
        "openinference",
        ("haystack-ai", "openinference-instrumentation-haystack"),
    ),
    "haystack-openllmetry": Combination(
        "Haystack 2 pipeline, OpenLLMetry",
        "haystack:pipeline",
        "traceloop",
        ("haystack-ai<3", "opentelemetry-instrumentation-haystack"),
        also=_TRACELOOP,
    ),
    "haystack-2.9-openinference": Combination(
        "Haystack 2.9 pipeline, OpenInference 0.1.16",
        "haystack:pipeline",
        "openinference",
        ("haystack-ai==2.9.0", "openinference-instrumentation-haystack==0.1.16"),
        also=("wrapt<2",),
    ),
    "haystack-langfuse": Combination(
        "Haystack pipeline, `LangfuseConnector`",
        "haystack:pipeline",
        "langfuseconnector",
        ("haystack-ai", "langfuse-haystack"),
        ("connector",),
        setting="`LANGFUSE_HOST`, `HAYSTACK_CONTENT_TRACING_ENABLED=true`",
        has_session=False,
    ),
    "haystack-agent": Combination(
        "Haystack `Agent`, its own tracer",
        "haystack:agent",
        "sdk",
        ("haystack-ai", "opentelemetry-haystack"),
        setting="`HAYSTACK_CONTENT_TRACING_ENABLED=true`",
        has_session=False,
    ),
    **{
        f"dspy{name}-{tracer}": Combination(
            f"DSPy {what}, {whose}",
            "agents:dspy",
            tracer,
            ("dspy", package),
            (kind,),
            has_session=tracer == "openinference",
        )
        for name, what, kind in (("", "`ReAct`", "react"), ("-module", "module with a retriever", "module"))
        for tracer, whose, package in (
            ("openinference", "OpenInference", "openinference-instrumentation-dspy"),
            ("mlflow", "MLflow's `autolog`", "mlflow"),
        )
    },
    **{
        f"crewai-{tracer}-{returns}": Combination(
            f"CrewAI, a tool that returns {returns}, {whose}",
            "agents:crewai",
            tracer if tracer == "openinference" else "traceloop",
            ("crewai", package),
            (returns,),
            also=() if tracer == "openinference" else _TRACELOOP,
        )
        for tracer, whose, package in (
            ("openinference", "OpenInference", "openinference-instrumentation-crewai"),
            ("openllmetry", "OpenLLMetry", "opentelemetry-instrumentation-crewai"),
        )
        for returns in ("dicts", "text")
    },
    "autogen": Combination(
        "AutoGen AgentChat, its own",
        "agents:autogen",
        "sdk",
        ("autogen-agentchat",),
        has_session=False,
        also=("autogen-ext[openai]",),
    ),
    "autogen-openinference": Combination(
        "AutoGen AgentChat, OpenInference",
        "agents:autogen",
        "openinference",
        ("autogen-agentchat", "openinference-instrumentation-autogen-agentchat"),
        also=("autogen-ext[openai]",),
    ),
    "ag2": Combination(
        "AG2 1, its `TelemetryMiddleware`", "agents:ag2", "sdk", ("ag2",), has_session=False, also=("openai",)
    ),
    **{
        f"agent-framework-{returns}": Combination(
            f"Microsoft Agent Framework, a tool that returns {returns}, its own",
            "agents:agent_framework",
            "sdk",
            ("agent-framework-core",),
            (returns,),
            setting="`enable_instrumentation(enable_sensitive_data=True)`",
            also=("agent-framework-openai",),
        )
        for returns in ("dicts", "text")
    },
    **{
        f"semantic-kernel{name}": Combination(
            f"Semantic Kernel agent, {what}",
            "agents:semantic_kernel",
            "sdk",
            ("semantic-kernel",),
            tuple(arguments),
            setting="`SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE=true`",
            environment={"SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE": "true"},
            has_session=False,
        )
        for name, what, *arguments in (("", "its spans alone"), ("-logs", "its spans and logs", "logs"))
    },
    **{
        f"openai-agents-{returns}-openinference": Combination(
            f"OpenAI Agents SDK, a tool that returns {returns}, OpenInference",
            "agents:openai_agents",
            "openinference",
            ("openai-agents", "openinference-instrumentation-openai-agents"),
            (returns,),
        )
        for returns in ("dicts", "text")
    },
    "openai-agents-0.2-openinference": Combination(
        "OpenAI Agents SDK 0.2, OpenInference 1.2",
        "agents:openai_agents",
        "openinference",
        ("openai-agents==0.2.11", "openinference-instrumentation-openai-agents==1.2.0"),
        also=("wrapt<2",),
    ),
    "openai-agents-v2": Combination(
        "OpenAI Agents SDK, OpenTelemetry's `openai-agents-v2`",
        "agents:openai_agents",
        "contrib",
        ("openai-agents", "opentelemetry-instrumentation-openai-agents-v2"),
        ("dicts", "group"),
        has_session=False,
    ),
    "openai-agents-logfire": Combination(
        "OpenAI Agents SDK, Logfire",
        "agents:openai_agents",
        "logfire",
        ("openai-agents", "logfire"),
        ("dicts", "group"),
        setting="`OTEL_EXPORTER_OTLP_ENDPOINT`",
    ),
    **{
        f"pydantic-ai-{kind}": Combination(
            f"Pydantic AI, {what}, its own",
            "agents:pydantic_ai",
            "sdk",
            ("pydantic-ai-slim",),
            (kind,),
            also=("openai",),
        )
        for kind, what in (
            ("dicts", "a tool that returns dicts"),
            ("structured", "`output_type` with fields"),
        )
    },
    "pydantic-ai-logfire": Combination(
        "Pydantic AI, a tool that returns text, Logfire",
        "agents:pydantic_ai",
        "logfire",
        ("pydantic-ai-slim", "logfire"),
        ("text",),
        setting="`OTEL_EXPORTER_OTLP_ENDPOINT`",
        also=("openai",),
    ),
    "pydantic-ai-1": Combination(
        "Pydantic AI 1, its own",
        "agents:pydantic_ai",
        "sdk",
        ("pydantic-ai-slim<2",),
        also=("openai",),
    ),
    "pydantic-ai-0.4": Combination(
        "Pydantic AI 0.4, its own",
        "agents:pydantic_ai",
        "sdk",
        ("pydantic-ai-slim==0.4.11",),
        has_session=False,
        also=("openai<2", "opentelemetry-sdk<1.42"),
    ),
    "pydantic-ai-mcp": Combination(
        "Pydantic AI with an MCP server, their own",
        "agents:mcp",
        "sdk",
        ("mcp", "fastmcp-slim[server]", "pydantic-ai-slim[mcp]"),
        also=("openai",),
    ),
    **{
        f"smolagents-{returns}-openinference": Combination(
            f"smolagents, {what}, OpenInference",
            "agents:smolagents",
            "openinference",
            ("smolagents", "openinference-instrumentation-smolagents"),
            (returns,),
            also=("openai",),
        )
        for returns, what in (("dicts", "a tool that returns dicts"), ("text", "`RetrieverTool` of the tutorial"))
    },
    **{
        f"agno-{kind}-openinference": Combination(
            f"Agno, {what}, OpenInference",
            "agents:agno",
            "openinference",
            ("agno", "openinference-instrumentation-agno"),
            (kind,),
            also=("openai",),
        )
        for kind, what in (("dicts", "a tool that returns dicts"), ("knowledge", "`knowledge_retriever`"))
    },
    **{
        f"strands-{returns}": Combination(
            f"Strands, a tool that returns {returns}, its own",
            "agents:strands",
            "sdk",
            ("strands-agents[openai]>=1.60",),
            (returns,),
            setting='`trace_attributes={"session.id": …}`',
        )
        for returns in ("dicts", "text")
    },
    "strands-0.2": Combination(
        "Strands 0.2, its own",
        "agents:strands",
        "sdk",
        ("strands-agents[openai]==0.2.1",),
        setting='`trace_attributes={"session.id": …}`',
    ),
    **{
        f"google-adk{name}": Combination(
            f"Google ADK 2, its own, {what}",
            "agents:adk",
            "sdk",
            ("google-adk>=2",),
            setting=_CONTENT_SETTING if name == "" else "",
            environment=_CONTENT if name == "" else {},
        )
        for name, what in (("", "with content"), ("-no-content", "as it is"))
    },
    "google-adk-1.14": Combination("Google ADK 1.14, its own", "agents:adk", "sdk", ("google-adk==1.14.1",)),
    "openai-openinference": Combination(
        "OpenAI's SDK and an own search, OpenInference",
        "sdks:openai",
        "openinference",
        ("openai", "openinference-instrumentation-openai"),
    ),
    "openai-openllmetry": Combination(
        "OpenAI's SDK and an own search, OpenLLMetry",
        "sdks:openai",
        "openllmetry",
        ("openai", "opentelemetry-instrumentation-openai"),
        has_session=False,
    ),
    "openai-responses-openinference": Combination(
        "OpenAI's responses and an own search, OpenInference",
        "sdks:responses",
        "openinference",
        ("openai", "openinference-instrumentation-openai"),
    ),
    "openai-responses-openllmetry": Combination(
        "OpenAI's responses and an own search, OpenLLMetry",
        "sdks:responses",
        "openllmetry",
        ("openai", "opentelemetry-instrumentation-openai"),
        has_session=False,
    ),
    "openai-responses-logfire": Combination(
        "OpenAI's responses and an own search, Logfire",
        "sdks:responses",
        "logfire",
        ("openai", "logfire"),
        setting="`OTEL_EXPORTER_OTLP_ENDPOINT`",
        has_session=False,
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
    **{
        f"openai-{tracer}-decorators": Combination(
            f"OpenAI's SDK, {whose}",
            "sdks:decorated",
            tracer,
            packages,
            (tracer,),
            setting="`OTEL_EXPORTER_OTLP_ENDPOINT`" if tracer == "logfire" else "",
            has_session=tracer not in ("logfire", "openlit"),
            also=also,
        )
        for tracer, whose, packages, *also in (
            ("traceloop", "Traceloop's SDK, `@workflow` and `@task`", ("openai<3", "traceloop-sdk")),
            (
                "phoenix",
                "Phoenix's decorators",
                ("openai<3", "arize-phoenix-otel"),
                "openinference-instrumentation-openai",
            ),
            ("logfire", "Logfire's `@instrument`", ("openai", "logfire")),
            ("langfuse", 'Langfuse\'s `@observe(as_type="retriever")`', ("openai", "langfuse")),
            ("mlflow", "MLflow's `@trace`", ("openai", "mlflow")),
            ("openlit", "OpenLIT's `@trace`", ("openai", "openlit"), "opentelemetry-sdk<1.42"),
            ("laminar", "Laminar's `@observe`", ("openai", "lmnr")),
        )
    },
    "mlflow-tracing-decorators": Combination(
        "`mlflow-tracing`'s `@trace`",
        "sdks:decorated",
        "mlflow",
        ("mlflow-tracing",),
        ("mlflow",),
        setting="`OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`",
        also=("openai",),
    ),
    "openai-langfuse-3-untyped": Combination(
        "OpenAI's SDK, Langfuse 3, `@observe` without a type",
        "sdks:decorated",
        "langfuse",
        ("openai", "langfuse<4"),
        ("langfuse_untyped",),
    ),
    "openai-langfuse-3-decorators": Combination(
        'OpenAI\'s SDK, Langfuse 3, `@observe(as_type="retriever")`',
        "sdks:decorated",
        "langfuse",
        ("openai", "langfuse<4"),
        ("langfuse",),
    ),
    "trulens": Combination(
        "OpenAI's SDK, TruLens 2's `@instrument`",
        "sdks:trulens",
        "trulens",
        ("trulens-core", "trulens-otel-semconv"),
        setting='`TruSession(otel_exporter="otlp")`',
        also=("openai",),
    ),
    "litellm": Combination(
        'LiteLLM and an own search, `callbacks = ["otel"]`',
        "sdks:litellm",
        "litellm",
        ("litellm",),
        has_session=False,
    ),
    "anthropic-openinference": Combination(
        "Anthropic's SDK and an own search, OpenInference",
        "sdks:anthropic",
        "openinference",
        ("anthropic", "openinference-instrumentation-anthropic"),
    ),
    "anthropic-openllmetry": Combination(
        "Anthropic's SDK and an own search, OpenLLMetry",
        "sdks:anthropic",
        "traceloop",
        ("anthropic", "opentelemetry-instrumentation-anthropic"),
        also=_TRACELOOP,
    ),
    "anthropic-root-openllmetry": Combination(
        "Anthropic's SDK and an own search in a span of the application, OpenLLMetry",
        "sdks:anthropic",
        "traceloop",
        ("anthropic", "opentelemetry-instrumentation-anthropic"),
        ("root",),
        also=_TRACELOOP,
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
            f"{title} and OpenAI's SDK, OpenLLMetry",
            "sdks:vectors",
            "traceloop",
            (package, instrumentation, "opentelemetry-instrumentation-openai"),
            (store,),
            also=("openai<3", *_TRACELOOP, *also),
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
        also=_LLAMA_MODEL,
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
            ("llama-index", "LlamaIndex query engine", "llama_index:query_engine", "llama-index-core", _LLAMA_MODEL),
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
    "vercel-openinference": Combination(
        "Vercel AI SDK 6, a tool that retrieves, OpenInference's processor",
        "vercel.mjs",
        "openinference",
        ("ai@6", "@arizeai/openinference-vercel"),
        ("tool",),
        setting="`experimental_telemetry: { isEnabled: true }`",
        also=("@ai-sdk/openai@3", "zod"),
    ),
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
