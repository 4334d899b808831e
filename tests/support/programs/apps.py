"""Applications that a tracer wraps as a whole."""

# ruff: noqa: PLC0415 - only one of the tracers is installed
from __future__ import annotations

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
