"""What `@ragmon.trace` costs a call, above the undecorated call, beside the bare OpenTelemetry SDK.

`python -m bench.capture`: CPU nanoseconds a call, the best of interleaved rounds in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from time import process_time
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

import ragmon
from ragmon.capture import call
from ragmon.capture.call import CaptureSettings
from ragmon.capture.convert import call_to_record
from ragmon.capture.worker import Worker
from ragmon.core.refusals import RefusalRule
from ragmon.testing import Collected

CALLS = 40_000
CHUNK = 500
ROUNDS = 9
RESULT = {
    "answer": "The harbour master sets the fee, says the handbook of the port.",
    "citations": ["doc1#2"],
    "documents": [{"id": f"doc{place}#1", "text": "x" * 540, "score": 0.5} for place in range(5)],
}
KEEP: Mapping[str, float] = {"error": 1.0, "refusal": 0.2, "slow": 1.0}
STRATA = CaptureSettings(rate=0.0, keep=KEEP, slow_above=8.0)
TERMS = {
    "unsampled, counted only": CaptureSettings(rate=0.0, time_all=False),
    "unsampled, timed": CaptureSettings(rate=0.0),
    "unsampled, strata (asked 1/10, async 1/9)": STRATA,
    "unsampled, strata by words": replace(STRATA, refuses=RefusalRule().refuses),
    "unsampled, strata and detail": replace(STRATA, detail=True),
    "sampled, five documents (asked 1/2.5)": replace(STRATA, rate=1.0),
}

WORKER = Worker(call_to_record, Collected(), max_bytes=1 << 60)


def forget() -> None:
    """Take away what waits, as a worker would that keeps up."""
    WORKER._queue.clear()  # noqa: SLF001 - what is measured is how calls get there
    for counters in () if call.current is None else call.current.counters.values():
        for source, stratum in counters.latencies:
            counters.take_latencies(source, stratum)


def plain(question: str) -> dict[str, Any]:
    """A pipeline that costs nothing."""
    return RESULT


async def plain_async(question: str) -> dict[str, Any]:
    """The same, async."""
    return RESULT


def passing(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """What no wrapper can cost less than."""
    return plain(*args, **kwargs)


async def passing_async(*args: Any, **kwargs: Any) -> dict[str, Any]:
    """The same, async."""
    return await plain_async(*args, **kwargs)


TRACER = TracerProvider(sampler=TraceIdRatioBased(0.01)).get_tracer("bench")


def spanned(question: str) -> dict[str, Any]:
    """The same in a span of the bare SDK, whose ratio sampler keeps 1 %."""
    with TRACER.start_as_current_span("answer"):
        return RESULT


async def spanned_async(question: str) -> dict[str, Any]:
    """The same, async."""
    with TRACER.start_as_current_span("answer"):
        return RESULT


def sync(function: Callable[[str], Any]) -> Callable[[], float]:
    """Nanoseconds a call of a function."""

    def run() -> float:
        spent = 0.0
        for _ in range(CALLS // CHUNK):
            started = process_time()
            for _ in range(CHUNK):
                function("q")
            spent += process_time() - started
            forget()
        return spent / CALLS * 1e9

    return run


def in_loop(function: Callable[[str], Coroutine[Any, Any, Any]]) -> Callable[[], float]:
    """Nanoseconds a call of an async function that never waits."""

    async def calls() -> float:
        spent = 0.0
        for _ in range(CALLS // CHUNK):
            started = process_time()
            for _ in range(CHUNK):
                await function("q")
            spent += process_time() - started
            forget()
        return spent / CALLS * 1e9

    return lambda: asyncio.run(calls())


@contextmanager
def installed(terms: CaptureSettings) -> Iterator[None]:
    """A runtime with a worker that does not run: this is about the caller's thread."""
    before = call.install_runtime(call.Runtime(WORKER.submit, settings=lambda _: terms))
    try:
        yield
    finally:
        call.install_runtime(before)


def measure(kinds: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The best time above the undecorated call of a span, of a wrapper that does nothing, and of ragmon's terms."""
    variants: list[tuple[str, CaptureSettings | None, Callable[[], float]]]
    variants = [(name, None, run) for name, run in kinds.items() if name != "traced"]
    variants += [(name, terms, kinds["traced"]) for name, terms in TERMS.items()]
    best = {name: float("inf") for name, _, _ in variants}
    for _ in range(ROUNDS):
        for name, terms, run in variants:
            with nullcontext() if terms is None else installed(terms):
                best[name] = min(best[name], run())
    return {name: spent - best["undecorated"] for name, spent in best.items()}


def main() -> None:
    """Print the costs, and their ratios to a span that the ratio sampler drops."""
    costs = {
        "sync": measure(
            {
                "undecorated": sync(plain),
                "span": sync(spanned),
                "passed through": sync(passing),
                "traced": sync(ragmon.trace(plain)),
            }
        ),
        "async": measure(
            {
                "undecorated": in_loop(plain_async),
                "span": in_loop(spanned_async),
                "passed through": in_loop(passing_async),
                "traced": in_loop(ragmon.trace(plain_async)),
            }
        ),
    }
    for kind, above in costs.items():
        print(f"{kind}: a span that the ratio sampler drops costs {above['span']:.0f} ns above the undecorated call")
        for name in ("passed through", *TERMS):
            print(f"  {name:42} {above[name]:6.0f} ns = 1/{above['span'] / above[name]:.1f} of it")


if __name__ == "__main__":
    main()
