"""What importing ragmon costs a program, and what a command costs before it works, beyond Python itself.

`python -m bench.imports`: CPU time, the least of some fresh processes; commands run whole, as a user types them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 9
PROGRAMS = ("import ragmon", "import ragmon; ragmon.trace; ragmon.record; ragmon.stage")
LIBRARIES = "import click, msgspec"
"""The program that commands are compared with: what a command line that reads JSON needs at least."""
ITEMS = [
    {"qid": "a", "question": "How long is the quay?", "answerable": True, "gold_claim_substr": ["74 metres"]},
    {"qid": "b", "question": "Who built the quay?", "answerable": True, "gold_citations": ["quay#1"]},
    {"qid": "c", "question": "What did the quay cost?", "answerable": False},
]
TRACES = [
    {"v": 1, "qid": "a", "answer_json": {"claim": "It is 74 metres long.", "citations": ["quay#2"]}},
    {"v": 1, "qid": "b", "answer_json": {"claim": "Ada did.", "citations": ["quay#1"]}, "retrieved_ids": ["quay#1"]},
    {"v": 1, "qid": "c", "answer_json": {"claim": "not in context"}},
]
GATE = ("gate", "traces.jsonl", "--gold", "gold.jsonl")


def milliseconds(*arguments: str, folder: str | None = None) -> float:
    """CPU time of a process of Python that does nothing else."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * best


def main() -> None:
    """Print the costs."""
    python, libraries = milliseconds("-c", "pass"), milliseconds("-c", LIBRARIES)
    print(f"Python alone takes {python:.0f} ms of CPU")
    for code in PROGRAMS:
        print(f"  {code}: {milliseconds('-c', code) - python:+.0f} ms (at most 30)")
    print(f"{LIBRARIES}: {libraries:.0f} ms; whole commands against it")
    with tempfile.TemporaryDirectory() as folder:
        for name, rows in (("gold", ITEMS), ("traces", TRACES)):
            text = "".join(json.dumps(row) + "\n" for row in rows)
            Path(folder, f"{name}.jsonl").write_text(text, encoding="utf-8")
        for command, most in ((GATE, 5), (("gate", "--help"), 2), (("view", "--help"), 2), (("--help",), 2)):
            ratio = milliseconds("-m", "ragmon", *command, folder=folder) / libraries
            print(f"  ragmon {' '.join(command)}: {ratio:.1f} x (at most {most})")


if __name__ == "__main__":
    main()
