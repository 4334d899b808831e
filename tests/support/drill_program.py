"""Five pipelines that answer gold questions without a fault until SIGUSR1, when four break, and again after SIGUSR2."""

from __future__ import annotations

import itertools
import json
import signal
import time
from pathlib import Path
from threading import Event
from typing import Any

import ragmon

PAUSE = 0.15
"""Seconds between two questions to all pipelines."""
broken, ended = Event(), Event()
ITEMS = [json.loads(line) for line in Path("gold.jsonl").read_text(encoding="utf-8").splitlines()]


def right(item: dict[str, Any]) -> dict[str, Any]:
    """What gold asks for."""
    if not item["answerable"]:
        return {"answer": "not in context", "citations": [], "documents": [{"id": "d0", "text": "Nothing of it."}]}
    cited = item["gold_citations"]
    text = f"The answer is {item['gold_claim_substr'][0]}."
    return {
        "answer": text,
        "citations": cited,
        "documents": [{"id": cited[0], "text": text}, {"id": "d0", "text": "No."}],
    }


def swapped(item: dict[str, Any]) -> dict[str, Any]:
    """Half of the ids belong to others: the index was built wrongly."""
    found = right(item)
    if int(item["qid"][1:]) % 2:
        found |= {"citations": ["d0"] * bool(found["citations"]), "documents": [{"id": "d0", "text": "Nothing of it."}]}
    return found | {"index_hash": "index-2"}


def refusing(item: dict[str, Any]) -> dict[str, Any]:
    """Two of three answers are refused."""
    return right(item | {"answerable": False} if int(item["qid"][1:]) % 3 else item)


def failing(item: dict[str, Any]) -> dict[str, Any]:
    """Two of five calls fail."""
    if int(item["qid"][1:]) % 5 < 2:
        raise ConnectionError("the store")
    return right(item)


def slow(item: dict[str, Any]) -> dict[str, Any]:
    """Answers take their time."""
    time.sleep(0.04)
    return right(item)


BREAKS = {"swapped": swapped, "refusing": refusing, "failing": failing, "slow": slow, "quiet": right}


def pipeline(name: str) -> Any:
    """A traced pipeline that breaks in its own way."""

    @ragmon.trace(name)
    def answer(question: str, item: int) -> dict[str, Any]:
        found = {"index_hash": "index-1", "build": "b1"}
        return found | (BREAKS[name] if broken.is_set() else right)(ITEMS[item])

    return answer


if __name__ == "__main__":
    installed = ragmon.install()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    signal.signal(signal.SIGUSR1, lambda *_: broken.set())
    signal.signal(signal.SIGUSR2, lambda *_: broken.clear())
    pipelines = [pipeline(name) for name in BREAKS]
    begun = time.monotonic()
    for turn in itertools.count():
        number = turn % len(ITEMS)
        for ask in pipelines:
            try:
                ask(ITEMS[number]["question"], number)
            except ConnectionError:
                """As users see it."""
        if ended.wait(max(0.0, begun + turn * PAUSE - time.monotonic())):  # what a busy machine missed is asked later
            break
    installed.shutdown()
