"""Applications around a pipeline: under a web server, or wrapped as a whole by a tracer."""

# ruff: noqa: PLC0415 - only one of the tracers is installed
from __future__ import annotations

import json
import threading
import time
from functools import partial
from urllib.request import Request, urlopen

from tests.support.programs.sdks import chat
from tests.support.programs.timetable import SERVICE, search


def trulens(tracer):
    """A class whose methods TruLens instruments."""
    from trulens.apps.app import TruApp
    from trulens.core.otel.instrument import instrument
    from trulens.otel.semconv.trace import SpanAttributes

    def of_retrieval(returned, raised, *arguments, **_):
        retrieval = SpanAttributes.RETRIEVAL
        contexts = [one["text"] for one in returned or ()]
        return {retrieval.QUERY_TEXT: arguments[-1], retrieval.RETRIEVED_CONTEXTS: contexts}

    class Timetable:
        @instrument(span_type=SpanAttributes.SpanType.RETRIEVAL, attributes=of_retrieval)
        def retrieve(self, query):
            return search(query)

        @instrument(span_type=SpanAttributes.SpanType.GENERATION)
        def generate(self, question, documents):
            return chat(question, documents)

        @instrument()
        def answer(self, question):
            return self.generate(question, self.retrieve(question))

    app = Timetable()
    recorded = TruApp(app, app_name=SERVICE, app_version="1.0.0", main_method=app.answer)

    def ask(question, session):
        with recorded(conversation_id=session):
            return app.answer(question)

    return ask


def fastapi(tracer):
    """LangChain's chain behind FastAPI, whose spans are around those of the chain."""
    import uvicorn
    from fastapi import FastAPI
    from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor

    from tests.support.programs.langchain import lcel

    calls = dict(zip(("ask", "stream"), lcel(tracer), strict=True))
    app = FastAPI()
    FastAPIInstrumentor.instrument_app(app, tracer_provider=tracer.provider)

    @app.post("/{name}")
    def answer(name: str, asked: dict[str, str]):
        with tracer.session(asked["session"]):
            return calls[name](**asked)

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical"))
    threading.Thread(target=server.run, daemon=True).start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def post(name, question, session):
        body = json.dumps({"question": question, "session": session}).encode()
        with urlopen(Request(f"http://127.0.0.1:{port}/{name}", body, {"Content-Type": "application/json"})) as replied:
            return json.load(replied)

    return partial(post, "ask"), partial(post, "stream")
