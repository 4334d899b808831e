"""The spans of one request as a tree, and which of them is the request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from ragmon import attributes as keys
from ragmon.spans.model import Span
from ragmon.spans.roles import Role, role_of
from ragmon.spans.values import mapping

_WORK: Final = (Role.RETRIEVAL, Role.RERANKING, Role.GENERATION)
_RAG: Final = (Role.WORKFLOW, *_WORK)


class Trace:
    """The spans of one request.

    Args:
        spans: In any order; of two with the same id the first one counts.
    """

    def __init__(self, spans: Iterable[Span]) -> None:
        self._by_id: dict[str, Span] = {}
        for span in spans:
            self._by_id.setdefault(span.span_id, span)
        self._above: dict[str, dict[str, Span]] = {}
        self._roles = {span_id: role_of(span) for span_id, span in self._by_id.items()}
        counted: Iterable[Span] = self._by_id.values()
        if Role.ASIDE in self._roles.values():
            counted = [span for span in counted if not self.inside(span, Role.ASIDE, itself=True)]
        self.spans = sorted(counted, key=lambda span: (span.start_ns, -span.end_ns))
        """In the order they started, without those of judges."""
        self.outermost = [span for span in self.spans if self.role(span) in _RAG and not self.inside(span, *_RAG)]
        """Those that have to do with RAG and lie in no other such span."""
        tops = {top.span_id: top for top in map(self._top, self.outermost)}
        self.root = next(iter(tops.values())) if len(tops) == 1 else None
        """The request: the span that holds all of those and lies in no other, a web server's perhaps."""

    @property
    def tops(self) -> list[Span]:
        """The request and the outermost spans in it, in the order they started."""
        return self.outermost if self.root is None or self.root in self.outermost else [self.root, *self.outermost]

    @cached_property
    def steps(self) -> list[Span]:
        """Retrievals and rerankings, in the order they ended."""
        return self.having(Role.RETRIEVAL, Role.RERANKING)

    @cached_property
    def calls(self) -> list[Span]:
        """Model calls that may be answers, in the order they ended: none that rewrites a query or judges documents."""
        calls = self.having(Role.GENERATION)
        return [span for span in calls if not self.inside(span, Role.RETRIEVAL, Role.RERANKING)]

    @property
    def is_rag(self) -> bool:
        """Whether anything was retrieved or a model asked."""
        return any(self.role(span) in _WORK or keys.DOCUMENTS in span.attributes for span in self.spans)

    @cached_property
    def metadata(self) -> list[Mapping[str, Any]]:
        """What the application attached to each span; most repeat what stands on the one before."""
        found: list[Mapping[str, Any]] = []
        before = None
        for span in self.spans:
            told = span.attributes.get(keys.METADATA)
            found.append(found[-1] if isinstance(told, str) and told == before else mapping(told))
            before = told
        return found

    def role(self, span: Span) -> Role:
        """What a span did."""
        return self._roles[span.span_id]

    def having(self, *roles: Role) -> list[Span]:
        """The spans of some roles, in the order they ended."""
        return sorted((span for span in self.spans if self.role(span) in roles), key=lambda span: span.end_ns)

    def inside(self, span: Span, *roles: Role, itself: bool = False) -> bool:
        """Whether a span lies in one of some roles."""
        return (itself and self.role(span) in roles) or any(self.role(above) in roles for above in self.above(span))

    def lies_in(self, span: Span, other: Span) -> bool:
        """Whether a span lies in another one."""
        return other.span_id in self._enclosing(span)

    def above(self, span: Span) -> Iterable[Span]:
        """The spans a span lies in, the nearest first."""
        return self._enclosing(span).values()

    def _enclosing(self, span: Span) -> dict[str, Span]:
        """The spans a span lies in by their ids, the nearest first; looked up once, for agents nest deeply."""
        found = self._above.get(span.span_id)
        if found is None:
            found = self._above[span.span_id] = {}
            parent = self._by_id.get(span.parent_id or "")
            while parent is not None and parent.span_id != span.span_id and parent.span_id not in found:
                found[parent.span_id] = parent
                parent = self._by_id.get(parent.parent_id or "")
        return found

    def _top(self, span: Span) -> Span:
        """The outermost span a span lies in."""
        *_, top = (span, *self.above(span))
        return top
