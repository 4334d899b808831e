"""What samplers in front of ragmon say on spans: the probability with which a trace was kept.

Consistent probability samplers write a threshold into the tracestate (`ot=th:…`), as the collector's do; others write
an attribute. A tail sampler keeps errors with another probability than the rest, so the records of one probability are
a stratum, and estimates weigh them. Where spans say that they were sampled and not how, gates say what they are of.

Source: OpenTelemetry, TraceState: Probability Sampling; semantic conventions for sampling (experimental), Honeycomb's
`SampleRate`, Jaeger's `sampler.type` and `sampler.param`, `logfire.sample_rate`.
"""

from __future__ import annotations

from hashlib import sha256
from math import isfinite
from typing import Final

from ragmon.core.constants import SAMPLED
from ragmon.core.record import Sampling
from ragmon.core.sampling import SPAN, bits, members, stratum_of
from ragmon.core.written import as_text, number
from ragmon.ingest.spans.span import Span, Trace

_SHARES: Final = ("sampling.probability", "sampling.ratio", "logfire.sample_rate")
_RATES: Final = ("sampling.rate", "SampleRate", "sampling.adjusted_count")
"""Attributes with a probability; and those where a number above 1 says of how many traces one was kept."""
_THRESHOLD: Final = "sampling.threshold"
_TYPE, _PARAM = "sampler.type", "sampler.param"
_MARKS: Final = ("sampling.priority", "tailsampling.policy", "meta.refinery.reason", _TYPE)
"""Attributes of samplers that say nothing of a probability."""
KEYS: Final = frozenset({*_SHARES, *_RATES, _THRESHOLD, _PARAM, *_MARKS})
MAX_PIPELINES: Final = 4096


def probability(span: Span) -> float | None:
    """The probability with which a sampler kept a span; None where the span does not say.

    >>> span = Span("0" * 32, "0" * 16, None, "ask", 0, 1, state="vendor=x,ot=th:c;rv:0123456789abcd")
    >>> probability(span), probability(span._replace(state="", attributes={"SampleRate": 20}))
    (0.25, 0.05)
    """
    entries = (entry.strip().partition("=") for entry in span.state.split(",")) if span.state else ()
    state = next((value for key, _, value in entries if key == "ot"), "")
    threshold = bits(members(state).get("th", ""))
    if threshold is None and _THRESHOLD in span.attributes:
        threshold = bits(as_text(span.attributes[_THRESHOLD]) or "")
    if threshold is not None:
        return 1 - threshold / SPAN
    shares = (*_SHARES, _PARAM) if span.attributes.get(_TYPE) == "probabilistic" else _SHARES
    for key in (*shares, *_RATES):
        share = number(span.attributes.get(key)) if key in span.attributes else None
        if share is not None and share > 1 and key in _RATES:
            share = 1 / share
        if share is not None and isfinite(share) and 0 < share <= 1:
            return share
    return None


class UpstreamSampling:
    """The sampling of records whose spans say with which probability they were kept.

    Alarms, gold and labels read a uniform sample. It has the lowest probability that was seen of a pipeline: of what
    was kept with a higher one, it has that part, drawn by the trace id.

    Attributes:
        lowest: The lowest probability that was seen, by pipeline.
    """

    def __init__(self) -> None:
        self.lowest: dict[str, float] = {}

    def of(self, request: Trace, pipeline: str, rate: float = 1.0) -> Sampling | None:
        """The sampling of a request's record, of which ragmon itself draws a share; None where its spans say nothing.

        The draws of both are made from the trace id, so the smaller share decides.
        """
        spans = (request.first, *request.tops)
        upstream = next((p for p in map(probability, spans) if p is not None), None)
        if upstream is None:
            is_marked = any(key in span.attributes for span in spans for key in _MARKS)
            return Sampling(stratum=SAMPLED, p_audit=rate, p=rate) if is_marked else None
        p = min(upstream, rate)
        lowest = min(p, self.lowest.get(pipeline, 1.0))
        if pipeline in self.lowest or len(self.lowest) < MAX_PIPELINES:
            self.lowest[pipeline] = lowest
        audit = p == lowest or int.from_bytes(sha256(request.first.trace_id.encode()).digest()[:7], "big") < (
            lowest / p * SPAN
        )
        return Sampling(audit=audit, stratum=stratum_of(p), p_audit=lowest, p=p)
