"""The recordings in `tests/data/agents`, which `tests.support.record_agents` made."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from ragmon.core.record import Record
from ragmon.ingest.otlp import log_spans, spans
from ragmon.ingest.spans.span import Span, SpanOptions
from ragmon.ingest.trace_buffer import FileTraceBuffer
from tests.support.agent_model import REFUSAL, cited_places

FOLDER: Final = Path(__file__).parents[1] / "data" / "agents"
NAMES: Final = tuple(sorted(path.name.removesuffix(".jsonl.gz") for path in FOLDER.glob("*.jsonl.gz")))


class AskedQuestion(NamedTuple):
    """A question that a program was asked, and what the program really did.

    Attributes:
        q: The question.
        session: The session; None where users of the instrumentation cannot set one.
        stream: Whether the answer was streamed.
        found: The documents that each search returned, with id, score and text.
        answer: What the program returned; None where it raised.
        error: The type of what it raised; None where it returned.
        requests: The export requests in OTLP's JSON, in the order they came.
    """

    q: str
    session: str | None
    stream: bool
    found: list[list[dict[str, Any]]]
    answer: str | None
    error: str | None
    requests: list[dict[str, Any]]

    @property
    def documents(self) -> list[dict[str, Any]]:
        """The documents that were retrieved, each once."""
        return list({document["id"]: document for listed in self.found for document in listed}.values())

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return [document["id"] for document in self.documents]

    @property
    def citations(self) -> list[str] | None:
        """The ids of the documents that the answer cites; None where the answer cites none."""
        return [self.ids[place - 1] for place in cited_places(self.answer or "")] or None

    @property
    def refuses(self) -> bool:
        """Whether the program refused to answer."""
        return self.answer == REFUSAL

    @property
    def spans(self) -> list[Span]:
        """The spans of the request, without those that stand for its log records."""
        return [span for body in self.bodies for span, _ in spans(body, _refuse)]

    @property
    def bodies(self) -> list[bytes]:
        """The export requests as they are sent."""
        return [json.dumps(request, ensure_ascii=False).encode() for request in self.requests]

    def records(self, options: SpanOptions) -> list[Record]:
        """The records that ragmon makes of the export requests: one, if all is well."""
        buffer = FileTraceBuffer(options=options)
        told = chain.from_iterable(chain(spans(body, _refuse), log_spans(body)) for body in self.bodies)
        complete = (mapped for span, origin in told for mapped in buffer.add(span, origin.service, origin.build))
        return [mapped.record for mapped in (*complete, *buffer.end()) if mapped.record is not None]


def _refuse(rejected: Exception) -> None:
    raise rejected


def versions(name: str) -> Mapping[str, str]:
    """The versions of the packages that made a recording."""
    return next(_lines(name))["packages"]


@cache
def questions(name: str) -> list[AskedQuestion]:
    """The questions in a recording; a span that ended late, and came with the next one's, is with its own."""
    asked = [AskedQuestion(**line) for line in list(_lines(name))[1:]]
    for before, after in pairwise(asked):
        last = {span.trace_id: span.end_ns for span in sorted(before.spans, key=lambda span: span.end_ns)}
        for resource in [entry for request in after.requests for entry in request.get("resourceSpans", ())]:
            for scope in resource["scopeSpans"]:
                late = [
                    span for span in scope["spans"] if int(span["startTimeUnixNano"]) < last.get(span["traceId"], 0)
                ]
                scope["spans"] = [span for span in scope["spans"] if span not in late]
                moved = {**resource, "scopeSpans": [{**scope, "spans": late}]}
                before.requests.append({"resourceSpans": [moved]})
    return asked


def _lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)
