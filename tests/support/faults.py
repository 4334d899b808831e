"""Puts small faults into what is computed, one after the other, and tells which of them the tests find.

`tests/faults.toml` says what each fault means. A fault is found by its text, so its code may stand in any file; the
quick tests of its area run in a copy of the project, whose ragmon is in front of the installed one.

    python -m tests.support.faults --area scoring
    python -m tests.support.faults --only 17 --only 18
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "facts": ("metrics",),
    "scoring": ("scoring",),
    "gates": ("gates",),
    "alarms": ("alarms",),
    "ingest": ("ingest", "gold", "tabular"),
}
"""The folders of tests that mirror each area."""
PYTEST = ("-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", "--hypothesis-seed", "0")
LIMIT = 600.0
"""Seconds for the tests of one fault; when the time is up, the fault is not found."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A fault, by its number in the list."""

    number: int
    sentence: str
    area: str
    find: str
    replace: str

    @contextmanager
    def put_into(self, project: Path) -> Iterator[None]:
        """Put the fault into a copy of the project for a while. How lines are broken and indented makes no difference.

        Raises:
            SystemExit: Its text does not stand in the code exactly once, or what takes its place is no Python.
        """
        text = re.compile(r"\s+".join(map(re.escape, self.find.split())))
        places = [(path, hit) for path in project.glob("ragmon/**/*.py") for hit in text.finditer(path.read_text())]
        if len(places) != 1:
            sys.exit(f"fault {self.number}: {self.find!r} stands {len(places)} times in ragmon, not once")
        ((path, hit),) = places
        whole = path.read_text()
        faulty = whole[: hit.start()] + self.replace + whole[hit.end() :]
        compile(faulty, str(path), "exec")
        path.write_text(faulty)
        try:
            yield
        finally:
            path.write_text(whole)


def run(project: Path, *arguments: str) -> tuple[int, str]:
    """Run Python in a copy of the project: its exit code, -SIGKILL where the time was up, and its output."""
    environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": ""}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=project, env=environment, start_new_session=True, **pipes) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
    return process.returncode, output


def tests_of(area: str, project: Path, kept: str) -> tuple[str, str]:
    """Run the tests of an area with the marks that are kept.

    Returns:
        `found` where a test failed, else `missed` or `time up`; and the first test that failed.
    """
    code, output = run(project, *PYTEST, "-m", kept, *(f"tests/{folder}" for folder in FOLDERS[area]))
    results = {0: "missed", 1: "found", 2: "found", -signal.SIGKILL: "time up"}  # 2: a file could not be imported
    if code not in results:
        sys.exit(f"the tests of {area} did not run:\n{output[-2000:]}")
    return results[code], next(iter(_FAILED.findall(output)), "")


def copy_project(folder: Path) -> Path:
    """A copy of the project whose ragmon is the one that tests and the programs they start import."""
    project = Path(shutil.copytree(ROOT, folder / "project", ignore=shutil.ignore_patterns(".*", "__pycache__")))
    # A compiled file is checked by its source, not by its time: faults come and go within a second.
    run(project, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "ragmon")
    where = "import subprocess, sys, ragmon; print(ragmon.__file__, flush=True)"
    again = "; subprocess.run([sys.executable, '-c', 'import ragmon; print(ragmon.__file__)'], cwd='/')"
    _, output = run(project, "-c", where + again)
    assert output.split() == 2 * [str(project / "ragmon" / "__init__.py")], output
    return project


def main() -> int:
    """Try the faults; the exit code is 1 where one was not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--area", action="append", choices=FOLDERS, help="only faults of this one; repeatable")
    parser.add_argument("--only", action="append", type=int, help="only the fault with this number; repeatable")
    parser.add_argument("--jobs", type=int, default=1, help="how many faults are tried at the same time")
    parser.add_argument("--slow", action="store_true", help="run the slow tests as well")
    asked = parser.parse_args()
    listed = tomllib.loads((ROOT / "tests" / "faults.toml").read_text())["fault"]
    faults = [Fault(number, **fields) for number, fields in enumerate(listed, 1)]
    faults = [fault for fault in faults if fault.area in (asked.area or FOLDERS)]
    faults = [fault for fault in faults if asked.only is None or fault.number in asked.only]
    areas = [Fault(0, "no fault", area, "", "") for area in FOLDERS if any(fault.area == area for fault in faults)]
    results: dict[str, Counter[str]] = {area.area: Counter() for area in areas}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.jobs) as jobs:
        projects: SimpleQueue[Path] = SimpleQueue()
        for job in range(asked.jobs):
            projects.put(copy_project(Path(folder, str(job))))

        def attempt(fault: Fault) -> tuple[Fault, str, str]:
            project, begun = projects.get(), time.monotonic()
            try:
                with fault.put_into(project) if fault.number else nullcontext():
                    result, test = tests_of(fault.area, project, "" if asked.slow else "not slow")
            finally:
                shutil.rmtree(project / ".hypothesis", ignore_errors=True)  # what failed with another fault is no hint
                projects.put(project)
            return fault, result, f"{time.monotonic() - begun:.0f} s {test}"

        for fault, result, how in jobs.map(attempt, [*areas, *faults]):
            if fault.number:
                results[fault.area][result] += 1
                say(f"{result:8}{fault.number:3} {fault.area:8} {fault.sentence} ({how})")
            elif result != "missed":
                sys.exit(f"the tests of {fault.area} fail without a fault: {how}")
    for area, counts in results.items():
        say(f"{area:8} {', '.join(f'{n} {result}' for result, n in sorted(counts.items()))}")
    found = sum(counts["found"] for counts in results.values())
    say(f"{found} of {len(faults)} faults found")
    return int(found < len(faults))


def say(text: str) -> None:
    """A line for whoever waits."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
