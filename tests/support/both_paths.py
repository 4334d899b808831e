"""One replay on both paths: by plain Python, which is the law, and with the native core."""

from __future__ import annotations

import json
import os
from contextlib import contextmanager
from dataclasses import asdict

from ragmon.config.gates import default
from ragmon.core import capture_hints
from ragmon.core.policy import Policy
from ragmon.monitor.replay import run_files
from ragmon.native.library import SWITCH

POLICY = Policy(gates=tuple(gate for gate in default()))


@contextmanager
def core(*, on):
    """The native core, on or off."""
    before = os.environ.get(SWITCH)
    os.environ[SWITCH] = "1" if on else "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[SWITCH]
        else:
            os.environ[SWITCH] = before


def forget_hints():
    """Forget what an earlier run, or another test, has read of documents and instrumentations."""
    capture_hints.documents.__init__()
    capture_hints.instrumentations.__init__(capture_hints.KEPT)


def outcome(paths, make_scorer, *, on, jobs=1, policy=POLICY, over_time=False):
    """Everything that a run says; its windows and histories where that is asked, because times far apart make many."""
    forget_hints()
    with core(on=on):
        run = run_files([str(path) for path in paths], make_scorer, jobs=jobs)
    report = run.report(policy, windows=over_time)
    state = run.scorer.state
    return {
        "digest": state.digest(),
        "report": json.loads(report.json()),
        "intake": asdict(run.intake),
        "labels": len(run.labels),
        "captured": {
            key: (series.whole().masks, series.whole().ids, series.whole().examples, series.whole().candidates)
            for key, series in state.captured
        },
        "histories": {key: [asdict(p) for p in h.points] for key, h in run.history(report).items()}
        if over_time
        else {},
    }


def assert_equal(paths, make_scorer, **how):
    """Both paths say the same; the first thing that differs is shown."""
    plain, native = outcome(paths, make_scorer, on=False, **how), outcome(paths, make_scorer, on=True, **how)
    for name in plain:
        if isinstance(plain[name], dict):
            for key in {*plain[name], *native[name]}:
                assert plain[name].get(key) == native[name].get(key), f"{name}: {key}"
        assert plain[name] == native[name], name
    return native


def differs(paths, make_scorer, **how):
    """Whether the two paths say something else; what they raise is a part of what they say."""
    return _said(paths, make_scorer, on=False, **how) != _said(paths, make_scorer, on=True, **how)


def _said(paths, make_scorer, **how):
    try:
        return outcome(paths, make_scorer, **how)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return repr(error)
