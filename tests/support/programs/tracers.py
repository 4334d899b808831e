"""The instrumentations under which the programs run, each set up as its users do.

Only one of them is installed beside a framework.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import os
import re
from contextlib import contextmanager, nullcontext
from importlib.metadata import entry_points

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
    """Installed instrumentors of the packages of a combination."""

    def __init__(self, combination):
        super().__init__(combination)
        ours = {_plain(requirement) for requirement in combination.packages}
        loaded = [
            entry.load()
            for entry in entry_points(group="opentelemetry_instrumentor")
            if _plain(entry.dist.name) in ours
        ]
        for instrumentor in dict.fromkeys(loaded):
            instrumentor().instrument(tracer_provider=self.provider, logger_provider=self.loggers, skip_dep_check=True)


def _plain(requirement):
    return re.match(r"[\w.-]+", requirement)[0].lower().replace("_", "-")


class OpenInference(Contrib):
    def session(self, session):
        from openinference.instrumentation import using_session

        return using_session(session)


class OpenLLMetry(Contrib):
    """OpenLLMetry's instrumentors without its SDK; sessions are association properties."""

    def langchain(self, session):
        return {"metadata": {"session_id": session}}

    @contextmanager
    def session(self, session):
        from opentelemetry import context

        token = context.attach(context.set_value("association_properties", {"session_id": session}))
        yield
        context.detach(token)


class Traceloop(Sdk):
    """Traceloop's SDK, which sets up everything by itself."""

    def __init__(self, combination):
        from traceloop.sdk import Traceloop as Installed

        endpoint = os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        Installed.init(SERVICE, api_endpoint=endpoint, disable_batch=True, api_key=KEY)

    def session(self, session):
        from traceloop.sdk import Traceloop as Installed

        Installed.set_association_properties({"session_id": session})
        return nullcontext()

    def langchain(self, session):
        return {"metadata": {"session_id": session}}

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


TRACERS = {
    tracer.__name__.lower(): tracer for tracer in (Sdk, Contrib, OpenInference, OpenLLMetry, Traceloop, Langfuse)
}
