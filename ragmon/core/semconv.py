"""Attribute keys of spans, metrics and log events: those of ragmon, and those of the conventions it reads and writes.

Sources: OpenTelemetry semantic conventions for generative AI (status: development), OpenInference's semantic
conventions, OpenLLMetry's and TruLens's span attributes.
"""

from __future__ import annotations

from typing import Final

# Families of instrumentations, as people call them.
GENAI: Final = "OpenTelemetry GenAI"
OPENINFERENCE: Final = "OpenInference"
OPENLLMETRY: Final = "OpenLLMetry"
TRULENS: Final = "TruLens"
AGENT_FRAMEWORK: Final = "Agent Framework"
AUTOGEN: Final = "AutoGen"
GOOGLE_ADK: Final = "Google ADK"
HAYSTACK: Final = "Haystack"
LAMINAR: Final = "Laminar"
LANGFUSE: Final = "Langfuse"
LANGSMITH: Final = "LangSmith"
LITELLM: Final = "LiteLLM"
LLAMA_INDEX: Final = "LlamaIndex"
LOGFIRE: Final = "Logfire"
MASTRA: Final = "Mastra"
MLFLOW: Final = "MLflow"
OPENAI_AGENTS: Final = "OpenAI Agents SDK"
OPENLIT: Final = "OpenLIT"
PYDANTIC_AI: Final = "Pydantic AI"
SEMANTIC_KERNEL: Final = "Semantic Kernel"
STRANDS: Final = "Strands"
VERCEL: Final = "AI SDK"
_OF_OPENLLMETRY: Final = (
    *("agno", "alephalpha", "anthropic", "bedrock", "chromadb", "cohere", "crewai", "google_generativeai", "groq"),
    *("haystack", "lancedb", "langchain", "llamaindex", "marqo", "mcp", "milvus", "mistralai", "ollama", "openai"),
    *("pinecone", "qdrant", "replicate", "sagemaker", "together", "transformers", "voyageai", "watsonx", "weaviate"),
    "writer",
)
"""The packages of OpenLLMetry whose spans have a scope that no package of OpenTelemetry's own has."""
INSTRUMENTATIONS: Final = {
    **{f"opentelemetry.instrumentation.{name}": OPENLLMETRY for name in _OF_OPENLLMETRY},
    "@mastra": MASTRA,
    "@traceloop": OPENLLMETRY,
    "agent_framework": AGENT_FRAMEWORK,
    "autogen-core": AUTOGEN,
    "gcp.vertex.agent": GOOGLE_ADK,
    "haystack": HAYSTACK,
    "langfuse-sdk": LANGFUSE,
    "langsmith": LANGSMITH,
    "litellm": LITELLM,
    "llamaindex": LLAMA_INDEX,
    "lmnr": LAMINAR,
    "mlflow": MLFLOW,
    "logfire.openai_agents": OPENAI_AGENTS,
    "logfire": LOGFIRE,
    "openinference": OPENINFERENCE,
    "openlit": OPENLIT,
    "pydantic-ai": PYDANTIC_AI,
    "semantic_kernel": SEMANTIC_KERNEL,
    "strands": STRANDS,
    "traceloop": OPENLLMETRY,
    "ai": VERCEL,
    "gen_ai": VERCEL,  # since AI SDK 7
}
"""By the first words of the scope or the name of their spans; the first that fits."""

# Attributes of ragmon.
RAGMON_CONTRACT_VERSION: Final = "ragmon.contract.version"
RAGMON_RECORD: Final = "ragmon.record"
"""On the root span: the whole record as one line of the trace contract. No other span of the trace is needed."""
RAGMON_QID: Final = "ragmon.qid"
RAGMON_QUESTION: Final = "ragmon.question"
"""On any span: the user's question, set by an application in any language."""
RAGMON_CLAIM: Final = "ragmon.answer.claim"
RAGMON_CITATIONS: Final = "ragmon.answer.citations"
"""On the span that answers: the claim and the ids it cites, set by an application in any language."""
RAGMON_PROBABILITY: Final = "ragmon.sampling.probability"
RAGMON_OK: Final = "ragmon.ok"
"""Whether the call ended without an error."""
RAGMON_INTERNAL: Final = "ragmon.internal"
"""On the spans of ragmon itself, such as the calls of a judge: never monitored as traffic."""

# OpenTelemetry, generative AI.
OPERATION: Final = "gen_ai.operation.name"
INVOKE_WORKFLOW: Final = "invoke_workflow"
RETRIEVAL: Final = "retrieval"
SEARCH_MEMORY: Final = "search_memory"
MEMORY_QUERY: Final = "gen_ai.memory.query.text"
MEMORY_RECORDS: Final = "gen_ai.memory.records"
"""A JSON array of `{"id", "content", "score", ...}`, what a search in the memory of an agent found."""
WORKFLOW_NAME: Final = "gen_ai.workflow.name"
INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
QUERY_TEXT: Final = "gen_ai.retrieval.query.text"
DOCUMENTS: Final = "gen_ai.retrieval.documents"
"""A JSON array of `{"id", "score", ...}`, in rank order."""
EVALUATION: Final = "gen_ai.evaluation.result"
EVALUATION_NAME: Final = "gen_ai.evaluation.name"
EVALUATION_SCORE: Final = "gen_ai.evaluation.score.value"
EVALUATION_LABEL: Final = "gen_ai.evaluation.score.label"
EXECUTE_TOOL: Final = "execute_tool"
EXECUTE_TASK: Final = "execute_task"
GENAI_TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_RESULT: Final = "gen_ai.tool.call.result"
TOOL_TYPE: Final = "gen_ai.tool.type"
DATASTORE: Final = "datastore"
"""The type of a tool that retrieves."""
ERROR_TYPE: Final = "error.type"
CONVERSATION: Final = "gen_ai.conversation.id"
RETURN: Final = "return"
"""What a function of the application returned, in a span of Logfire; its arguments have their own names."""
FINAL_RESULT: Final = "final_result"
"""What an agent of Pydantic AI returned."""
LEGACY_PROMPTS: Final = "gen_ai.prompt"
LEGACY_COMPLETIONS: Final = "gen_ai.completion"
"""Flattened messages as written before 2025: `gen_ai.completion.N.{role,content}`."""
REQUEST_MODEL: Final = "gen_ai.request.model"
RESPONSE_MODEL: Final = "gen_ai.response.model"
INFERENCE_DETAILS: Final = "gen_ai.client.inference.operation.details"
"""An event with the messages of a model call, `gen_ai.input.messages` and `gen_ai.output.messages`."""
SYSTEM_EVENT: Final = "gen_ai.system.message"
USER_EVENT: Final = "gen_ai.user.message"
ASSISTANT_EVENT: Final = "gen_ai.assistant.message"
TOOL_EVENT: Final = "gen_ai.tool.message"
CHOICE_EVENT: Final = "gen_ai.choice"
"""Events with one message each, as written before 2025: `content`, or `message` where it is the model's choice."""
EXCEPTION: Final = "exception"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
HTTP_STATUS: Final = ("http.response.status_code", "http.status_code")
OF_SERVERS: Final = ("http.route", "url.path", "http.target")
"""Attributes of HTTP that servers have, and clients have not."""

# OpenInference.
SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_TYPE: Final = "output.mime_type"
CHAIN: Final = "CHAIN"
RETRIEVER: Final = "RETRIEVER"
EVALUATOR: Final = "EVALUATOR"
RERANKER: Final = "RERANKER"
LLM: Final = "LLM"
AGENT: Final = "AGENT"
GUARDRAIL: Final = "GUARDRAIL"
EMBEDDING: Final = "EMBEDDING"
TOOL: Final = "TOOL"
TOOL_NAME: Final = "tool.name"
RETRIEVED: Final = "retrieval.documents"
EVALUATIONS: Final = "evaluations"
TRACE_ANNOTATIONS: Final = "trace.annotations"
RERANKER_INPUT: Final = "reranker.input_documents"
RERANKER_OUTPUT: Final = "reranker.output_documents"
"""Flattened documents: `retrieval.documents.N.document.{id,content,metadata,score}`."""
DOCUMENT: Final = "document"
RERANKER_QUERY: Final = "reranker.query"
LLM_INPUT: Final = "llm.input_messages"
LLM_OUTPUT: Final = "llm.output_messages"
"""Flattened messages: `llm.output_messages.N.message.{role,content}`."""
MESSAGE: Final = "message"
LLM_MODEL: Final = "llm.model_name"
PROMPT_TEMPLATE: Final = "llm.prompt_template.template"
METADATA: Final = "metadata"
"""A JSON object the application gave its spans."""
SESSION: Final = "session.id"
USER: Final = "user.id"
END_USER: Final = "enduser.id"
"""The user, in OpenInference's and OpenTelemetry's words, and in those of OpenTelemetry before 2025."""
ANNOTATIONS: Final = "annotations"
"""A score on a span: `annotations.N.annotation.{name,score,label,annotator_kind}`."""

# Metrics with the call totals of a producer: cumulative counts of all its calls, sampled or not.
REQUESTS: Final = "rag.requests"
"""Calls by pipeline, source, stratum and outcome; the sum over outcomes is the number of calls."""
E2E_LATENCY: Final = "rag.e2e_latency"
"""Seconds from end to end by pipeline, source and stratum."""
RECORDS_DROPPED: Final = "ragmon.records.dropped"
"""Records lost in the producer by pipeline, source, stratum and reason."""
PIPELINE: Final = "pipeline"
SOURCE: Final = "source"
STRATUM: Final = "stratum"
OUTCOME: Final = "outcome"
REASON: Final = "reason"
KEPT: Final = "kept"
"""The outcome of a call that became a record."""
UNKEPT: Final = "unkept"
"""The outcome of every other call."""

# OpenTelemetry, code and the Model Context Protocol.
FUNCTION_NAME: Final = "code.function.name"
MCP_METHOD: Final = "mcp.method.name"

# OpenTelemetry, resources.
SERVICE_INSTANCE: Final = "service.instance.id"

# OpenLLMetry (Traceloop).
TRACELOOP_KIND: Final = "traceloop.span.kind"
TRACELOOP_WORKFLOW: Final = "traceloop.workflow.name"
ENTITY_NAME: Final = "traceloop.entity.name"
ENTITY_INPUT: Final = "traceloop.entity.input"
ENTITY_OUTPUT: Final = "traceloop.entity.output"
"""Always JSON, even where the value is a text."""
ASSOCIATION: Final = "traceloop.association.properties"
METADATA_PREFIXES: Final = (
    *(f"{ASSOCIATION}.", "ai.telemetry.metadata.", "ai.settings.context.", "mlflow.traceTag."),
    *("langfuse.trace.metadata.", "langfuse.observation.metadata.", "langsmith.metadata.", "mastra.metadata."),
    "lmnr.association.properties.",
)
"""What precedes the names of members of the application's metadata where each is an attribute of its own."""
TASK_STATUS: Final = "gen_ai.task.status"
REQUEST_TYPE: Final = "llm.request.type"

# Vector database clients (OpenLLMetry): one event for each hit; attribute keys start with the event's name.
QUERY_RESULT: Final = "db.query.result"
SEARCH_RESULT: Final = "db.search.result"
VECTOR_TOP_K: Final = "db.vector.query.top_k"
CHROMA_RESULTS: Final = "db.chroma.query.n_results"

# TruLens.
TRULENS_KIND: Final = "ai.observability.span_type"
TRULENS_INPUT: Final = "ai.observability.record_root.input"
TRULENS_OUTPUT: Final = "ai.observability.record_root.output"
TRULENS_ERROR: Final = "ai.observability.record_root.error"
TRULENS_QUERY: Final = "ai.observability.retrieval.query_text"
TRULENS_CONTEXTS: Final = "ai.observability.retrieval.retrieved_contexts"
TRULENS_RETURNED: Final = "ai.observability.call.return"
TRULENS_RERANKED: Final = "ai.observability.reranking.output_context_texts"
TRULENS_INPUT_ID: Final = "ai.observability.input_id"
TRULENS_CONVERSATION: Final = "ai.observability.conversation_id"
TRULENS_APP: Final = "ai.observability.app_name"
TRULENS_APP_VERSION: Final = "ai.observability.app_version"

FAMILY_KEYS: Final = {
    "langfuse.observation.type": LANGFUSE,
    "langsmith.span.kind": LANGSMITH,
    "lmnr.span.type": LAMINAR,
    "mastra.span.type": MASTRA,
    "mlflow.spanType": MLFLOW,
    SPAN_KIND: OPENINFERENCE,
    TRACELOOP_KIND: OPENLLMETRY,
    TRACELOOP_WORKFLOW: OPENLLMETRY,
    REQUEST_TYPE: OPENLLMETRY,
    TRULENS_KIND: TRULENS,
    OPERATION: GENAI,
}
"""Attributes that only spans of one family have, the surest first: spans of other families are given OpenInference's
kind where they are translated, and OpenLLMetry's have the operation of GenAI as well."""
