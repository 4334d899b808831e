"""One request as text for an engineer on call, and as JSON for programs. Times are UTC.

Everything in it may come from a request: what is not printable is replaced, line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec

from ragmon.core.errors import printable, printable_json
from ragmon.export.tables import text_table
from ragmon.gates.request import MatchedItem, MetricResult, RankedDocument, RequestReport, ShownText

COLUMN: Final = 10
LONGEST_CONTEXT: Final = 400
"""Characters shown of a retrieved text, unless all of it is asked for."""
LONGEST_TEXT: Final = 4_000
"""Characters shown of a question or an answer, unless all of it is asked for."""
_LONGEST_LINE: Final = 100_000
_LINES: Final = re.compile("[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]+")

_HEADINGS: Final = {
    "fails": ("fail",),
    "passes": ("pass",),
    "scores": ("scored",),
    "unknown": ("unassessed",),
    "outside": ("outside",),
}

_Lines = Iterator[tuple[str, str]]
"""The heading of a line ("" repeats the one above), and its text."""


def as_json(requests: Sequence[RequestReport]) -> str:
    """Requests as indented JSON."""
    return printable_json({"requests": msgspec.to_builtins(requests)}, indent=2)


def render(request: RequestReport, *, full: bool = False) -> str:
    """A request as lines of text.

    Args:
        request: The request.
        full: Show long texts as a whole.
    """
    entries = [
        *_head(request),
        *_text("question", request.question, full=full),
        *_text("answer", request.answer, full=full),
        *_citations(request),
        *_documents(request, full=full),
        *_gold(request.gold),
        *_metrics(request.metrics),
        *([("note", request.withheld)] if request.withheld else []),
    ]
    lines = [f"{heading:<{COLUMN}}{text}".rstrip() for heading, text in entries]
    return "\n".join([*lines, ""])


def _head(request: RequestReport) -> _Lines:
    known = request.ts is not None
    at = f"{datetime.fromtimestamp(request.ts or 0.0, UTC):%Y-%m-%d %H:%M:%S} UTC" if known else "at an unknown time"
    yield "trace", f"{printable(request.trace_id) or '(no id)'}  {at}"
    if request.link:
        yield "", printable(request.link, 2000)
    about = [request.pipeline, request.source, "" if request.kept == "audit" else f"kept as {request.kept}"]
    named = [("build", request.build), ("index", request.index_hash), ("model", request.model)]
    named += [("session", request.session), ("user", request.user)]
    about += [f"{name} {value}" for name, value in named if value]
    about += [f"{tag}={value}" for tag, value in (request.tags or {}).items()]
    yield "request", printable(", ".join(part for part in about if part), 2000)
    if request.latency_ms:
        yield "time", ", ".join(f"{stage} {ms:.0f} ms" for stage, ms in request.latency_ms.items())
    if request.error:
        yield "ended", f"in an error: {printable(request.error)}"
    elif request.ended:
        yield "ended", printable(request.ended)


def _text(heading: str, shown: ShownText, *, full: bool) -> _Lines:
    """A text, line by line, with what is to be said of it."""
    if shown.text is None:
        size = "" if shown.chars is None else f"{shown.chars} characters, "
        yield heading, f"({size}{printable(shown.note, 2000)})"
        return
    for place, line in enumerate(_shortened(shown.text, LONGEST_TEXT, full=full) or ["(empty)"]):
        yield "" if place else heading, line
    if shown.note:
        yield "", f"({printable(shown.note)})"


def _printable_lines(text: str) -> list[str]:
    return [printable(line, _LONGEST_LINE) for line in _LINES.split(text.replace("\t", "    ")) if line.strip()]


def _citations(request: RequestReport) -> _Lines:
    if request.citations is None:
        yield "cites", "(no list of citations was captured)"
    else:
        yield "cites", ", ".join(map(printable, request.citations)) or "nothing"


def _documents(request: RequestReport, *, full: bool) -> _Lines:
    documents = request.documents
    if documents is None:
        yield "retrieved", f"({printable(request.documents_note, 2000)})"
        return
    number = "nothing" if not documents else f"{len(documents)} document{'s' if len(documents) > 1 else ''}"
    before = "" if request.candidates is None else f", of {request.candidates} before reranking"
    yield "retrieved", f"{number}{before}"
    rows = [(f"{each.rank}", _id(each), _score(each), _marks(each)) for each in documents]
    for line, document in zip(text_table(rows, right=[0]), documents, strict=True):
        yield "", f"  {line}"
        for text in _context(document, full=full):
            yield "", f"       {text}"
    if request.documents_note and documents:
        yield "", f"({printable(request.documents_note, 2000)})"


def _id(document: RankedDocument) -> str:
    return "(no id)" if document.id is None else printable(document.id)


def _score(document: RankedDocument) -> str:
    return "" if document.score is None else f"{document.score:.4g}"


def _marks(document: RankedDocument) -> str:
    return ", ".join(mark for mark, is_so in (("gold", document.gold), ("cited", document.cited)) if is_so)


def _context(document: RankedDocument, *, full: bool) -> list[str]:
    """The lines of a retrieved text."""
    return [] if document.text is None else _shortened(document.text, LONGEST_CONTEXT, full=full)


def _shortened(text: str, most: int, *, full: bool) -> list[str]:
    """The lines of a text, of a longer one those of its first characters."""
    if full or len(text) <= most:
        return _printable_lines(text)
    return [*_printable_lines(text[:most]), f"… ({len(text):,} characters; --full shows all)"]


def _gold(item: MatchedItem | None) -> _Lines:
    if item is None:
        yield "gold", "no gold item matches the question"
        return
    version = f" {item.version}" if item.version else ""
    yield "gold", printable(f"{item.qid} of {item.gold or 'gold'}{version}, found by {item.how}", 2000)
    if item.question:
        yield "", f"question: {printable(item.question, 2000)}"
    if not item.answerable:
        yield "", "unanswerable: the right answer is a refusal"
        return
    if item.documents:
        yield "", f"documents: {', '.join(map(printable, item.documents))}"
    if item.texts:
        yield "", f"texts: {item.texts}"
    if item.claims:
        yield "", f"a right answer has: {' or '.join(repr(printable(claim)) for claim in item.claims)}"


class _Shared(NamedTuple):
    """What several metrics have in common: score, broken gates and reason."""

    score: str
    gates: tuple[str, ...]
    why: str


def _metrics(metrics: Sequence[MetricResult]) -> _Lines:
    """Scores that break a gate first, then the others, what is unassessed, and what does not apply.

    Metrics with the same score for the same reason share a line: a metric and its cuts often do.
    """
    for heading, outcomes in _HEADINGS.items():
        lines: dict[_Shared, list[str]] = {}
        for result in metrics:
            if result.outcome in outcomes:
                score = "" if result.score is None else f" {result.score:.4g}"
                lines.setdefault(_Shared(score, result.gates, result.why), []).append(result.metric)
        for place, (shared, names) in enumerate(lines.items()):
            yield "" if place else heading, _metric(names, shared)


def _metric(names: Sequence[str], shared: _Shared) -> str:
    """Metrics with the same score for the same reason; of those without a score the cuts go without saying."""
    if not shared.score:
        names = [name for name in names if name.partition("@")[0] not in names or "@" not in name]
    broken = f" (gate {', '.join(shared.gates)})" if shared.gates else ""
    reason = f": {shared.why}" if shared.why else ""
    return printable(f"{', '.join(names)}{shared.score}{broken}{reason}", 2000)
