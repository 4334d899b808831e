"""The table, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from bench.peers.measure import Cost, Measured
from bench.peers.variants import FEW, Variant

HEADINGS: Final = (
    "decorator",
    "version",
    "how much it records",
    "a word: caller µs",
    "× span",
    "process µs",
    "RAG result: caller µs",
    "× span",
    "process µs",
    "recorded",
)
LEGEND: Final = """\
CPU microseconds a call above the undecorated call, the best of the rounds. "Caller" is the thread that calls, "process"
all threads until nothing is on its way. "× span" is the caller's cost in spans of OpenTelemetry's SDK, recorded and
without attributes, measured in the same process. A word is "yes"; the RAG result is an answer and 5 documents of 540
characters. Nothing is encoded or sent: exporters count and forget. "Recorded" is what arrived there, of all calls.\
"""


def render(variants: Sequence[Variant], found: Mapping[str, Measured | str]) -> Iterator[str]:
    """The lines of the table and what must be known to read it.

    Args:
        variants: The rows.
        found: What was measured, or why it was not, by the variant's key.
    """
    yield _line(HEADINGS)
    yield _line(["---", "---", "---", *["---:"] * 7])
    refused: set[str] = set()
    for variant in variants:
        result = found[variant.key]
        if isinstance(result, Measured):
            refused.update(f"{times} of {variant.key} to {host}" for host, times in result.refused.items())
            result = result if as_meant(variant, result) else _wrong(result)
        yield _line(_cells(variant, result))
    yield ""
    yield LEGEND
    spans = [result.bare.caller for result in found.values() if isinstance(result, Measured)]
    if spans:
        yield f"One span took the caller {min(spans):.1f} to {max(spans):.1f} µs, by process."
    yield f"Connections to other machines, refused: {', '.join(sorted(refused)) or 'none was tried'}."


def as_meant(variant: Variant, result: Measured) -> bool:
    """Whether as many calls were recorded as a variant is about."""
    if variant.share == FEW:
        return FEW / 2 < result.recorded / result.calls < FEW * 2
    return result.recorded == variant.share * result.calls


def _wrong(result: Measured) -> str:
    return f"recorded {result.recorded} of {result.calls} calls, which is not what is compared here"


def _cells(variant: Variant, result: Measured | str) -> list[str]:
    if isinstance(result, str):
        return [variant.tracer, "", variant.how, f"not measured: {result}", *[""] * 6]
    costs = [*_cost(result.trivial, result.bare), *_cost(result.rag, result.bare)]
    return [variant.tracer, result.version, variant.how, *costs, f"{result.recorded:,} of {result.calls:,}"]


def _cost(cost: Cost, span: Cost) -> list[str]:
    return [_figures(cost.caller), f"{cost.caller / span.caller:.2f}", _figures(cost.process)]


def _figures(microseconds: float) -> str:
    """Three digits: the machine tells no more."""
    return f"{microseconds:.{2 if microseconds < 10 else 1 if microseconds < 100 else 0}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"
