"""The spans of one request as a tree, and which of them is the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

from ragmon.core import semconv
from ragmon.spans.model import Span
from ragmon.spans.roles import Role, role_of
from ragmon.spans.values import mapping

_STEPS: Final = Role.RETRIEVAL | Role.RERANKING
_WORK: Final = _STEPS | Role.GENERATION
_RAG: Final = Role.WORKFLOW | _WORK
DEEPEST: Final = 512
"""Spans around a span that are looked at, the nearest ones."""
_KEPT: Final = 200_000
"""Of spans around spans, how many are remembered: deep traces have more of those than spans."""
_NOTHING: Final[dict[str, Span]] = {}
_end = attrgetter("end_ns")


class Trace:
    """The spans of one request.

    Args:
        spans: In any order; of two with the same id the first one counts.

    Attributes:
        spans: In the order they started, without those of judges.
        ended: The same in the order they ended.
        outermost: Those that have to do with RAG and lie in no other such span, in the order they started.
        root: The request: the span that holds all of those and lies in no other, a web server's perhaps. None where
            several do.
        tops: The request and the outermost spans in it, in the order they started.
        steps: Retrievals and rerankings, in the order they ended.
        calls: Model calls that may be answers, in the order they ended: none that rewrites a query, judges documents or
            is a guardrail's.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str | None, Span] = {}
        for span in spans:
            self._by_id.setdefault(span.span_id, span)
        self._roles = {span.span_id: role_of(span) for span in self._by_id.values()}
        self._above: dict[str, dict[str, Span]] = {}
        self._around: dict[str, int] = {}
        self._room = _KEPT
        self._inside: dict[str, list[Span]] | None = None
        self._metadata: list[Mapping[str, Any]] | None = None
        spans = list(self._by_id.values())
        if Role.ASIDE in self._roles.values():
            spans = [span for span in spans if not (self.role(span) | self.around(span)) & Role.ASIDE]
        self.spans = sorted(spans, key=lambda span: (span.start_ns, -span.end_ns))
        self.ended = sorted(self.spans, key=_end)
        rag = [span for span in self.spans if self._roles[span.span_id] & _RAG]
        self.outermost = [span for span in rag if not self.around(span) & _RAG]
        self._outermost = {span.span_id for span in self.outermost}
        self.root = self._only_top()
        around = self.root is not None and self.root not in self.outermost
        self.tops = [self.root, *self.outermost] if self.root is not None and around else self.outermost
        self.steps = self.having(_STEPS)
        calls = [span for span in self.having(Role.GENERATION) if not self.around(span) & _STEPS]
        # A guardrail around everything checks nothing by itself.
        self.calls = [span for span in calls if not self.around(span) & Role.CHECK] or calls

    @property
    def is_rag(self) -> bool:
        """Whether anything was retrieved or a model asked, or a workflow failed before it came to that."""
        work = self.having(_WORK) or [span for span in self.having(Role.WORKFLOW) if span.failed]
        return bool(work) or any(semconv.DOCUMENTS in span.attributes for span in self.spans)

    @property
    def metadata(self) -> list[Mapping[str, Any]]:
        """What the application attached to each span; most repeat what stands on the one before."""
        if self._metadata is None:
            self._metadata = []
            before = None
            for span in self.spans:
                told = span.attributes.get(semconv.METADATA)
                same = isinstance(told, str) and told == before
                self._metadata.append(self._metadata[-1] if same else mapping(told))
                before = told
        return self._metadata

    def role(self, span: Span) -> int:
        """What a span did."""
        return self._roles[span.span_id]

    def having(self, roles: int) -> list[Span]:
        """The spans of some roles, in the order they ended."""
        return [span for span in self.ended if self._roles[span.span_id] & roles]

    def around(self, span: Span) -> int:
        """What the spans did that a span lies in."""
        did = self._around.get(span.span_id)
        if did is None:
            did = 0
            for span_id in self.above(span):
                did |= self._roles[span_id]
            self._around[span.span_id] = did
        return did

    def is_outermost(self, span: Span) -> bool:
        """Whether a span is one of the outermost."""
        return span.span_id in self._outermost

    def inside(self, outermost: Span) -> list[Span]:
        """The spans that lie in one of the outermost, in the order they started."""
        if self._inside is None:
            self._inside = {}
            for span in self.spans:
                for span_id in self._outermost.intersection(self.above(span)):
                    self._inside.setdefault(span_id, []).append(span)
        return self._inside.get(outermost.span_id, [])

    def above(self, span: Span) -> dict[str, Span]:
        """The nearest spans a span lies in by their ids, the nearest first; agents nest deeply."""
        if span.parent_id not in self._by_id:
            return _NOTHING
        found = self._above.get(span.span_id)
        if found is None:
            found = {}
            parent = self._by_id.get(span.parent_id)
            while parent is not None and parent.span_id != span.span_id and parent.span_id not in found:
                if len(found) >= DEEPEST:
                    break
                found[parent.span_id] = parent
                parent = self._by_id.get(parent.parent_id)
            if len(found) <= self._room:
                self._room -= len(found)
                self._above[span.span_id] = found
        return found

    def _only_top(self) -> Span | None:
        """The outermost span that all of those lie in that have to do with RAG; None where there are several."""
        top: Span | None = None
        for span in self.outermost:
            found = next(reversed(self.above(span).values()), span)
            if top is not None and found.span_id != top.span_id:
                return None
            top = found
        return top
