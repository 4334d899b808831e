"""Groundedness on ten contexts of 480 characters: microseconds a trace."""

from __future__ import annotations

import random
from time import process_time

from ragmon.metrics.builtin import groundedness

TRACES = 2000
CHUNKS = 1000


def texts(rng: random.Random, count: int, length: int) -> list[str]:
    """Texts of about so many characters, of words of everyday length."""
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 10))) for _ in range(3000)]
    return [" ".join(rng.choices(words, k=length // 7 + 8))[:length] for _ in range(count)]


def microseconds(pairs: list[tuple[str, list[str]]]) -> float:
    """CPU microseconds a trace."""
    started = process_time()
    for claim, contexts in pairs:
        groundedness(claim, contexts)
    return (process_time() - started) / len(pairs) * 1e6


def main() -> None:
    """Print the figure."""
    rng = random.Random(7)
    chunks, claims = texts(rng, CHUNKS, 480), texts(rng, TRACES, 200)
    pairs = [(claim, rng.sample(chunks, 10)) for claim in claims]
    print(f"groundedness: {min(microseconds(pairs) for _ in range(3)):.1f} us")


if __name__ == "__main__":
    main()
