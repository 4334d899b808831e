"""What `@ragmon.trace` costs a call, above the undecorated call, beside the bare OpenTelemetry SDK.

`python -m bench.capture`: CPU nanoseconds a call, the best of interleaved rounds in one process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from time import process_time
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

import ragmon
from ragmon.capture import runtime
from ragmon.capture.convert import to_record
from ragmon.capture.runtime import CaptureSettings
from ragmon.capture.worker import Worker
from ragmon.core.refusal import RefusalRule
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
BUDGETS = {
    "sampled out, counted only": (CaptureSettings(rate=0.0, time_all=False), 150),
    "sampled out, timed": (CaptureSettings(rate=0.0), 350),
    "sampled out, outcome strata": (CaptureSettings(rate=0.0, keep=KEEP, slow_above=8.0), 450),
    "sampled out, words of refusals": (
        CaptureSettings(rate=0.0, keep=KEEP, slow_above=8.0, refuses=RefusalRule().refuses),
        1000,
    ),
    "sampled out, strata and detail": (CaptureSettings(rate=0.0, keep=KEEP, slow_above=8.0, detail=True), 650),
    "sampled in": (CaptureSettings(rate=1.0, keep=KEEP, slow_above=8.0), 2000),
}
"""Terms, and the nanoseconds asked for, as measured on a machine whose bare SDK sampler takes 4,750."""

WORKER = Worker(to_record, Collected(), max_bytes=1 << 60)


def forget() -> None:
    """Take away the calls that wait, as a worker would that keeps up."""
    WORKER._queue.clear()  # noqa: SLF001 - what is measured is how they get there


def plain(question: str) -> dict[str, Any]:
    """A pipeline that costs nothing."""
    return RESULT


async def plain_async(question: str) -> dict[str, Any]:
    """The same, async."""
    return RESULT


def passing(question: str) -> dict[str, Any]:
    """What no wrapper written in Python can cost less than."""
    return plain(question)


async def passing_async(question: str) -> dict[str, Any]:
    """The same, async."""
    return await plain_async(question)


def spanned() -> Callable[[str], dict[str, Any]]:
    """The same in a span of the bare SDK, whose ratio sampler keeps 1 %."""
    tracer = TracerProvider(sampler=TraceIdRatioBased(0.01)).get_tracer("bench")

    def answer(question: str) -> dict[str, Any]:
        with tracer.start_as_current_span("answer"):
            return RESULT

    return answer


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
    before = runtime.install_runtime(runtime.Runtime(WORKER.submit, terms=lambda _: terms))
    try:
        yield
    finally:
        runtime.install_runtime(before)


def measure() -> dict[str, float]:
    """The best time of every variant, in rounds over all of them."""
    bare, bare_async = sync(plain), in_loop(plain_async)
    traced, traced_async = sync(ragmon.trace(plain)), in_loop(ragmon.trace(plain_async))
    variants: dict[str, tuple[CaptureSettings | None, Callable[[], float]]] = {
        "undecorated": (None, bare),
        "undecorated, async": (None, bare_async),
        "passed through": (None, sync(passing)),
        "passed through, async": (None, in_loop(passing_async)),
        "bare SDK, ratio sampler 1 %": (None, sync(spanned())),
    }
    for name, (asked, _) in BUDGETS.items():
        variants[name] = (asked, traced)
        variants[f"{name}, async"] = (asked, traced_async)
    best = dict.fromkeys(variants, float("inf"))
    for _ in range(ROUNDS):
        for name, (terms, run) in variants.items():
            with nullcontext() if terms is None else installed(terms):
                best[name] = min(best[name], run())
    return best


def main() -> None:
    """Print the costs and their ratios."""
    best = measure()
    sampler = best["bare SDK, ratio sampler 1 %"] - best["undecorated"]
    print(f"a span the bare SDK's ratio sampler drops: {sampler:.0f} ns above the undecorated call")
    floor, floor_async = (best[f"passed through{kind}"] - best[f"undecorated{kind}"] for kind in ("", ", async"))
    print(f"a wrapper that does nothing: {floor:.0f} ns, async {floor_async - floor:+.0f} ns")
    for name, (_, budget) in BUDGETS.items():
        cost = best[name] - best["undecorated"]
        more = best[f"{name}, async"] - best["undecorated, async"] - cost
        print(
            f"  {name:32} {cost:6.0f} ns = 1/{sampler / cost:.1f} of it"
            f" (budget {budget} where it takes 4,750: 1/{4750 / budget:.1f}); async {more:+.0f} ns"
        )


if __name__ == "__main__":
    main()
