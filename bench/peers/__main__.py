"""`python -m bench.peers`: what `@ragmon.trace` costs beside the decorators of other tracers, as a Markdown table.

It makes a virtual environment for them, sets up every tracer in a process of its own, with its telemetry switched off
and nothing but this machine within reach, and measures a span of OpenTelemetry's SDK beside it as the common ratio.
A tracer that cannot be installed or measured is a row that says why. All of it takes less than ten minutes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

import msgspec

from bench.peers.environment import ROOT, last_line, prepare, python
from bench.peers.measure import Measured
from bench.peers.table import render
from bench.peers.variants import QUIET, VARIANTS, Variant

LIMIT: Final = 580.0
MEASURING: Final = 220.0
ROW: Final = 60.0
"""Seconds all of it may take, what installing leaves of them, and one row."""


def run(variant: Variant, interpreter: Path, rounds: int, seconds: float) -> Measured | str:
    """Measure a row in a process of its own; returns why where it cannot be.

    Args:
        variant: The row.
        interpreter: Of the environment that has the tracers.
        rounds: How often everything is measured.
        seconds: How long it may take.
    """
    with TemporaryDirectory() as home:
        file = Path(home) / "measured.json"
        # Nothing of the user's: settings of a tracer might name a server.
        environment = {"PATH": os.defpath, "HOME": home, "TMPDIR": home, **QUIET, **variant.environment}
        command = [str(interpreter), "-m", "bench.peers.measure", variant.key, str(rounds), str(file)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
            )
            why = last_line(done.stderr)
        except subprocess.TimeoutExpired:
            why = f"not done within {seconds:.0f} s"
        return msgspec.json.decode(file.read_bytes(), type=Measured) if file.exists() else why


def measure(variants: Sequence[Variant], folder: Path, rounds: int, left: Callable[[], float]) -> None:
    """Install, measure and print."""
    missing = prepare(folder, lambda: max(0.0, left() - MEASURING))
    found: dict[str, Measured | str] = {}
    for variant in variants:
        why = missing.get(variant.package) or ("no time left" if left() <= 0 else None)
        found[variant.key] = why or run(variant, python(folder), rounds, min(ROW, left()))
    for line in render(variants, found):
        print(line)


def main() -> None:
    """Read the options."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description="Decorators of tracers, side by side.")
    parser.add_argument("--venv", type=Path, default=ROOT / ".venv-peers", help="where the tracers are installed")
    parser.add_argument("--rounds", type=int, default=9, help="the best of how many is shown (default: 9)")
    parser.add_argument("--only", default="", help="rows whose name contains this, such as ragmon or langfuse")
    options = parser.parse_args()
    until = monotonic() + LIMIT
    variants = [variant for variant in VARIANTS if options.only in variant.key]
    measure(variants, options.venv.absolute(), options.rounds, lambda: until - monotonic())


if __name__ == "__main__":
    main()
