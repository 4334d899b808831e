"""Trace files on several processes: each scores a byte range or a file, and the counts are added."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from threading import active_count

from ragmon.core.record import Line
from ragmon.ingest.files import Intake, Progress, byte_ranges, read_file, read_files, splittable
from ragmon.offline import Counted, Duplicates, Run
from ragmon.scoring.scorer import Scorer

MakeScorer = Callable[[], Scorer]
"""Makes the scorer of one process; must be picklable."""

Follow = Callable[[Iterable[Line]], Iterable[Line]]
"""Passes records on and looks at them."""


@dataclass(frozen=True)
class Task:
    """A file, or a range of bytes of it."""

    path: str
    part: tuple[int, int] | None = None


def run_files(
    paths: Sequence[str],
    make_scorer: MakeScorer,
    *,
    jobs: int = 1,
    duplicates: Duplicates = "all",
    progress: Progress | None = None,
    follow: Follow | None = None,
) -> Run:
    """Score trace files.

    Args:
        paths: The files.
        make_scorer: Called once per process.
        jobs: Processes. More than one need `duplicates = "all"`: which record was last is known in one place only.
        duplicates: Which record of a gold question counts.
        progress: Told the bytes read, with one job.
        follow: Is handed every record on its way to the scorer, with one job.
    """
    intake = Intake()
    run = Run(make_scorer(), intake, duplicates)
    tasks = _tasks(paths, jobs) if jobs > 1 and duplicates == "all" else []
    if len(tasks) <= 1:
        # Records die young and hold no cycles: the collector would only look at them again and again.
        collects = gc.isenabled()
        gc.freeze()
        gc.disable()
        try:
            records = read_files(paths, intake, progress)
            run.feed(records if follow is None else follow(records))
        finally:
            gc.unfreeze()
            if collects:
                gc.enable()
        return run
    # A fork starts at once, with gold and configuration in place; beside other threads it could inherit a held lock.
    context = get_context("fork" if active_count() == 1 and sys.platform == "linux" else "spawn")
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=context) as pool:
        results = pool.map(_score, tasks, [make_scorer] * len(tasks))
        for task, counted in zip(tasks, results, strict=True):
            begins = task.part is None or task.part[0] == 0
            run.merge(counted, lines_before=0 if begins else intake.lines)
    return run


def _tasks(paths: Sequence[str], jobs: int) -> list[Task]:
    tasks = []
    for path in paths:
        if splittable(path):
            tasks += [Task(path, part) for part in byte_ranges(path, jobs)]
        else:
            tasks.append(Task(path))
    return tasks


def _score(task: Task, make_scorer: MakeScorer) -> Counted:
    """One process's work."""
    gc.disable()
    intake = Intake()
    run = Run(make_scorer(), intake)
    run.feed(read_file(task.path, intake, part=task.part))
    return run.counted()
