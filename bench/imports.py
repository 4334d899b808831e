"""What importing ragmon costs a program, beyond Python itself.

`python -m bench.imports`: CPU milliseconds, the best of some fresh processes.
"""

from __future__ import annotations

import resource
import subprocess
import sys

ROUNDS = 9
PROGRAMS = ("import ragmon", "import ragmon; ragmon.trace; ragmon.record; ragmon.stage")


def milliseconds(code: str) -> float:
    """CPU time of a process that does nothing else."""
    best = float("inf")
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return 1000 * best


def main() -> None:
    """Print the costs."""
    python = milliseconds("pass")
    print(f"Python alone takes {python:.0f} ms of CPU")
    for code in PROGRAMS:
        print(f"  {code}: {milliseconds(code) - python:+.0f} ms (at most 30)")


if __name__ == "__main__":
    main()
