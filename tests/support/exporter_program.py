"""Asks a pipeline so many questions as it is told, says so, and ends as programs do: `exporter_program.py 50`."""

from __future__ import annotations

import logging
import resource
import sys

import ragmon


@ragmon.trace
def answer(question: str) -> dict[str, object]:
    """An answer of some length with a document."""
    return {"answer": f"It is {question} [1].", "documents": [{"id": "d1", "text": "a passage " * 20}]}


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s", stream=sys.stderr)
    ragmon.install()
    for number in range(int(sys.argv[1])):
        answer(f"question {number}")
    sys.stdout.write(f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss}\n")
    sys.stdout.flush()
