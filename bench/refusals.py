"""What the refusal matcher costs an answer, against `json.loads` of the record that holds it.

`python -m bench.refusals`: CPU time, the least of some rounds. The answers are random words of the demo's corpus, which
hold trigger words more often than real answers do.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import ragmon.demo
from ragmon.core.refusals import RefusalRule

ROUNDS, ANSWERS = 9, 500
LENGTHS = (20, 130)
TRIGGERS = (None, "not", "no", "without")


def answers(length: int, trigger: str | None, words: Sequence[str]) -> list[str]:
    """Answers of about so many characters; with a trigger in the middle, where one is asked for."""
    rng = random.Random(5)
    made: list[str] = []
    while len(made) < ANSWERS:
        answer = " ".join(rng.choices(words, k=length // 5))[: length - 8]
        first, _, second = answer.partition(" ") if length < 50 else (answer[: length // 2], "", answer[length // 2 :])
        made.append(answer if trigger is None else f"{first} {trigger} {second}")
    return made


def microseconds(work: Callable[[str], Any], texts: Sequence[str]) -> float:
    """CPU time for one text."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = process_time()
        for text in texts:
            work(text)
        best = min(best, process_time() - start)
    return 1e6 * best / len(texts)


def main() -> None:
    """Print the costs."""
    corpus = Path(ragmon.demo.__file__).with_name("corpus.jsonl").read_text(encoding="utf-8").lower()
    words, rule = re.findall("[a-z]+", corpus), RefusalRule()
    for length in LENGTHS:
        for trigger in TRIGGERS:
            texts = answers(length, trigger, words)
            line = {"v": 1, "qid": "a", "trace_id": "0" * 32, "ts": 1.7e9, "retrieved_ids": ["quay#1", "quay#2"]}
            records = [json.dumps({**line, "answer_json": {"claim": text, "citations": ["quay#1"]}}) for text in texts]
            loads, own = microseconds(json.loads, records), microseconds(rule.kind, texts)
            name = "whatever words" if trigger is None else f"with {trigger!r}"
            print(f"{length} characters, {name}: {own:.1f} us, {own / loads:.2f} x json.loads of the record")


if __name__ == "__main__":
    main()
