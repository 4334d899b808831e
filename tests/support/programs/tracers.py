"""The instrumentations under which the programs run, each set up as its users do.

Only one of them is installed beside a framework.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import importlib
import os
import re
import time
from contextlib import nullcontext
from importlib.metadata import entry_points
from tempfile import mkdtemp

from tests.support.programs.timetable import KEY, SERVICE


class Sdk:
    """OpenTelemetry's SDK with its OTLP exporters, for frameworks with spans of their own.

    Attributes:
        provider: The provider of tracers.
    """

    def __init__(self, combination):
        from opentelemetry import _logs, trace
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        resource = Resource({"service.name": SERVICE})
        self.provider, self.loggers = TracerProvider(resource=resource), LoggerProvider(resource=resource)
        self.provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self.loggers.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter()))
        trace.set_tracer_provider(self.provider)
        _logs.set_logger_provider(self.loggers)

    def langchain(self, session):
        """The configuration with which a runnable of LangChain is called."""
        return {}

    def session(self, session):
        """The context in which a question of a session is asked."""
        return nullcontext()

    def flush(self):
        """Send what is left of the last question."""
        self.provider.force_flush()
        self.loggers.force_flush()


class Contrib(Sdk):
    """The instrumentors of the packages of a combination."""

    def __init__(self, combination):
        super().__init__(combination)
        instrument(combination, tracer_provider=self.provider, logger_provider=self.loggers)


def instrument(combination, **providers):
    """Switch the instrumentors on that a combination names."""
    for package in map(_plain, combination.packages):
        if "-instrumentation-" in package:
            _instrumentor(package)().instrument(skip_dep_check=True, **providers)


def _instrumentor(package):
    """The instrumentor that a package declares, or that its module defines."""
    from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

    organisation, _, name = package.partition("-instrumentation-")
    entries = [one for one in entry_points(group="opentelemetry_instrumentor") if _plain(one.dist.name) == package]
    if entries:
        return min(entries, key=lambda one: one.name != name).load()
    module = importlib.import_module(f"{organisation}.instrumentation.{name.replace('-', '_')}")
    defined = [value for value in vars(module).values() if isinstance(value, type)]
    return next(one for one in defined if issubclass(one, BaseInstrumentor) and one.__module__ == module.__name__)


def _plain(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


class OpenInference(Contrib):
    def session(self, session):
        from openinference.instrumentation import using_session

        return using_session(session)


class OpenLLMetry(Contrib):
    """OpenLLMetry's instrumentors without its SDK."""

    def langchain(self, session):
        return {"metadata": {"session_id": session}}


class Traceloop(Sdk):
    """OpenLLMetry's SDK; sessions are association properties."""

    def __init__(self, combination):
        from opentelemetry import trace
        from traceloop.sdk import Traceloop as Installed

        endpoint = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        Installed.init(SERVICE, api_endpoint=endpoint, disable_batch=True, api_key=KEY)
        self.provider = trace.get_tracer_provider()
        instrument(combination, tracer_provider=self.provider)  # the SDK looks for a framework's own package alone

    def session(self, session):
        from traceloop.sdk import Traceloop as Installed

        Installed.set_association_properties({"session_id": session})
        return nullcontext()

    def flush(self):
        """Nothing: each span is sent at once."""


class Langfuse(Sdk):
    def __init__(self, combination):
        from langfuse import Langfuse as Client

        self.client = Client(public_key=KEY, secret_key=KEY, base_url=os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"])

    def langchain(self, session):
        from langfuse.langchain import CallbackHandler

        return {"callbacks": [CallbackHandler()], "metadata": {"langfuse_session_id": session}}

    def session(self, session):
        from langfuse import propagate_attributes

        return propagate_attributes(session_id=session)

    def flush(self):
        self.client.flush()


class LangfuseConnector(Sdk):
    """Langfuse's client in a component of a Haystack pipeline."""

    def __init__(self, combination):
        os.environ |= {
            "LANGFUSE_HOST": os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"],
            "LANGFUSE_PUBLIC_KEY": KEY,
            "LANGFUSE_SECRET_KEY": KEY,
        }

    def flush(self):
        from langfuse import get_client

        get_client().flush()


class TruLens(Sdk):
    def __init__(self, combination):
        from trulens.core import TruSession

        database = f"sqlite:///{mkdtemp()}/trulens.sqlite"
        self.client = TruSession(database_url=database, otel_exporter="otlp", otlp_protocol="http/protobuf")

    def flush(self):
        self.client.force_flush()


class LangSmith(Sdk):
    """LangSmith's export to OpenTelemetry, which `LANGSMITH_OTEL_ENABLED` switches on."""

    def langchain(self, session):
        return {"metadata": {"session_id": session}}

    def flush(self):
        from langsmith.run_trees import get_cached_client
        from opentelemetry import trace

        get_cached_client().flush()
        trace.get_tracer_provider().force_flush()


class LiteLlm(Sdk):
    def flush(self):
        time.sleep(1)  # its callbacks run in a thread that nothing waits for
        super().flush()


class OpenLit(Sdk):
    def __init__(self, combination):
        import openlit

        super().__init__(combination)
        endpoint = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        openlit.init(otlp_endpoint=endpoint, application_name=SERVICE, disable_metrics=True)

    def langchain(self, session):
        return {"metadata": {"session_id": session}}

    def flush(self):
        from opentelemetry import trace

        trace.get_tracer_provider().force_flush()
        self.loggers.force_flush()


AUTOLOGS = {
    "dspy": "dspy",
    "langchain": "langchain",
    "llama-index-core": "llama_index",
    "openai": "openai",
    "openai-agents": "openai",
    "pydantic-ai-slim": "pydantic_ai",
}
"""The modules of MLflow that trace a package."""


class MLflow(Sdk):
    """MLflow's tracing, exported over OTLP; `autolog` of the framework that is installed."""

    def __init__(self, combination):
        import mlflow

        os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT") + "/v1/traces"
        os.environ |= {
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_SERVICE_NAME": SERVICE,
            "MLFLOW_TRACKING_URI": "http://127.0.0.1:9",
        }
        for requirement in combination.packages:
            library = AUTOLOGS.get(_plain(requirement))
            if library is not None:
                getattr(mlflow, library).autolog()

    def langchain(self, session):
        return {"metadata": {"session_id": session}}

    def flush(self):
        import mlflow
        from mlflow.tracing.provider import get_bridged_tracer_provider

        mlflow.flush_trace_async_logging()
        get_bridged_tracer_provider().force_flush()


class Logfire(Sdk):
    def __init__(self, combination):
        import logfire

        logfire.configure(service_name=SERVICE, send_to_logfire=False, console=False)
        for requirement in combination.packages:
            library = _plain(requirement).removesuffix("-slim").replace("-", "_")
            if library in ("pydantic_ai", "openai_agents", "openai"):
                getattr(logfire, f"instrument_{library}")()

    def flush(self):
        import logfire

        logfire.force_flush()


class Laminar(Sdk):
    def __init__(self, combination):
        from lmnr import Laminar as Installed

        endpoint, _, port = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"].rpartition(":")
        Installed.initialize(project_api_key=KEY, base_url=endpoint, http_port=int(port), force_http=True)

    def flush(self):
        from lmnr import Laminar as Installed

        Installed.flush()


class Phoenix(OpenInference):
    """Phoenix's set-up of OpenTelemetry, whose tracers decorate functions."""

    def __init__(self, combination):
        from phoenix.otel import register

        endpoint = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] + "/v1/traces"
        self.provider = register(
            endpoint=endpoint, protocol="http/protobuf", project_name=SERVICE, auto_instrument=True, verbose=False
        )

    def flush(self):
        self.provider.force_flush()


class LlamaIndexOtel(Sdk):
    """LlamaIndex's own handler of spans."""

    def __init__(self, combination):
        from llama_index.observability.otel import LlamaIndexOpenTelemetry
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        super().__init__(combination)
        LlamaIndexOpenTelemetry(span_exporter=OTLPSpanExporter(), service_name_or_resource=SERVICE).start_registering()

    def flush(self):
        from opentelemetry import trace

        trace.get_tracer_provider().force_flush()


TRACERS = {
    tracer.__name__.lower(): tracer
    for tracer in (
        *(TruLens, LangfuseConnector, LiteLlm, Sdk, Contrib, OpenInference, OpenLLMetry, Traceloop, Langfuse),
        *(LangSmith, OpenLit, MLflow, Logfire, Laminar, Phoenix, LlamaIndexOtel),
    )
}
