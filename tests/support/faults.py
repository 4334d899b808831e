"""Puts small faults into what is computed, one after the other, and tells which of them the tests find.

`tests/faults.toml` says what each fault means. A fault is found by its text, so its code may stand in any file. The
quick tests of its area run in a copy of the project, whose ragmon is in front of the installed one.

    python -m tests.support.faults --area scoring
    python -m tests.support.faults --only 17 --only 18 --slow
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
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "facts": ("metrics",),
    "scoring": ("scoring",),
    "gates": ("gates",),
    "alarms": ("alarms",),
    "ingest": ("ingest",),
}
"""The folders of tests that mirror each area."""
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--dist", "loadfile", "--hypothesis-seed", "0")
LIMIT = 600.0
"""Seconds for the tests of one fault; when the time is up, the fault is not found."""
RESULTS = {0: "missed", 1: "found", 2: "found", -signal.SIGKILL: "time up"}
"""By pytest's exit code; 2 where a file of tests cannot be imported."""


def put(fault: dict[str, Any], project: Path) -> tuple[Path, str, str]:
    """The file that a fault changes, its text, and its text with the fault; line breaks and indentation do not matter.

    Raises:
        SystemExit: What the fault replaces does not stand in ragmon exactly once.
        SyntaxError: What the fault puts there is no Python.
    """
    pattern = re.compile(r"\s+".join(map(re.escape, fault["find"].split())))
    texts = ((path, path.read_text()) for path in sorted(project.glob("ragmon/**/*.py")))
    hits = [(path, text, hit) for path, text in texts for hit in pattern.finditer(text)]
    if len(hits) != 1:
        sys.exit(f"{fault['find']!r} stands {len(hits)} times in ragmon, not once: {[str(path) for path, *_ in hits]}")
    ((path, text, hit),) = hits
    faulty = text[: hit.start()] + fault["replace"] + text[hit.end() :]
    compile(faulty, str(path), "exec")
    return path, text, faulty


def run(project: Path, *arguments: str) -> tuple[int, str]:
    """Run Python in a copy of the project: its exit code, -SIGKILL where the time was up, and its output."""
    environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": ""}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, cwd=project, env=environment, start_new_session=True, **pipes) as process:
        try:
            output, _ = process.communicate(timeout=LIMIT)
        except BaseException as error:  # Ctrl-C too must not leave the tests alone
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
    return process.returncode, output


def copy_project(folder: str) -> Path:
    """A copy of the project whose ragmon is the one that tests and the programs they start import."""
    project = Path(shutil.copytree(ROOT, Path(folder, "project"), ignore=shutil.ignore_patterns(".*", "__pycache__")))
    # A compiled file is checked by its source, not by its time: faults come and go within a second.
    run(project, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "ragmon")
    where = "import subprocess, sys, ragmon; print(ragmon.__file__, flush=True)"
    again = "; subprocess.run([sys.executable, '-c', 'import ragmon; print(ragmon.__file__)'], cwd='/')"
    _, output = run(project, "-c", where + again)
    assert output.split() == 2 * [str(project / "ragmon" / "__init__.py")], output
    return project


def run_tests(area: str, project: Path, *options: str) -> tuple[str, str]:
    """Run the tests of an area: `found` where one failed, else `missed` or `time up`; and how."""
    begun = time.monotonic()
    code, output = run(project, *PYTEST, *options, *(f"tests/{folder}" for folder in FOLDERS[area]))
    shutil.rmtree(project / ".hypothesis", ignore_errors=True)  # what failed with one fault is no hint for the next
    if code not in RESULTS:
        sys.exit(f"the tests of {area} did not run:\n{output[-2000:]}")
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
    return RESULTS[code], f"{time.monotonic() - begun:.0f} s{', ' + failed[1] if failed else ''}"


def main() -> None:
    """Try the faults, and print which were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.faults", description=__doc__.split("\n")[0])
    parser.add_argument("--area", action="append", choices=FOLDERS, help="only faults of this one; repeatable")
    parser.add_argument("--only", action="append", type=int, help="only the fault with this number; repeatable")
    parser.add_argument("--slow", action="store_true", help="run the slow tests as well")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run tests")
    asked = parser.parse_args()
    options = ("-m", "" if asked.slow else "not slow", "-n", str(asked.jobs if asked.jobs > 1 else 0))
    faults = dict(enumerate(tomllib.loads((ROOT / "tests" / "faults.toml").read_text())["fault"], 1))
    for fault in faults.values():
        put(fault, ROOT)
    faults = {n: fault for n, fault in faults.items() if asked.only is None or n in asked.only}
    areas = {fault["area"] for fault in faults.values()} & set(asked.area or FOLDERS)
    results = {area: Counter[str]() for area in FOLDERS if area in areas}
    with tempfile.TemporaryDirectory() as folder:
        project = copy_project(folder)
        for area, counts in results.items():
            of_area = [(n, fault) for n, fault in faults.items() if fault["area"] == area]
            if (clean := run_tests(area, project, *options))[0] != "missed":
                sys.exit(f"the tests of {area} fail without a fault: {clean}")
            for n, fault in of_area:
                path, text, faulty = put(fault, project)
                path.write_text(faulty)
                result, how = run_tests(area, project, *options)
                path.write_text(text)
                counts[result] += 1
                say(f"{result:8}{n:3} {area:8} {fault['sentence']} ({how})")
    for area, counts in results.items():
        say(f"{area:8} {', '.join(f'{n} {result}' for result, n in sorted(counts.items()))}")
    found, tried = sum(counts["found"] for counts in results.values()), sum(map(Counter.total, results.values()))
    say(f"{found} of {tried} faults found")


def say(text: str) -> None:
    """Print a line at once, for whoever waits."""
    print(text, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
