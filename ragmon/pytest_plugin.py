"""The plugin of pytest: the fixture `ragmon`, and `--ragmon-gate`, which judges what all tests recorded.

Every run of pytest imports this file; the rest of ragmon is imported when a test records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from ragmon.core.record import Record
    from ragmon.testing import Recorder

_GATE: Final = "--ragmon-gate"
_RECORDED: Final = "ragmon_records"  # by a process of pytest-xdist
_RECORDS: Final = pytest.StashKey[list["Record"]]()
_SUMMARY: Final = pytest.StashKey[str]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--ragmon-gate`."""
    text = "judge what the tests with the fixture `ragmon` recorded; the run fails where a gate of ragmon.toml does"
    parser.getgroup("ragmon").addoption(_GATE, action="store_true", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Begin without records."""
    config.stash[_RECORDS] = []


@pytest.fixture
def ragmon(request: pytest.FixtureRequest) -> Iterator[Recorder]:
    """Record every call of a function under `@ragmon.trace`; `ragmon.report()` judges them."""
    from ragmon.testing import Recorder  # noqa: PLC0415 - as said above

    with Recorder() as recorder:
        yield recorder
    request.config.stash[_RECORDS] += recorder.records


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a process of pytest-xdist recorded; one that crashed has nothing."""
    from ragmon.core.record import decode_entry  # noqa: PLC0415 - as said above

    node.config.stash[_RECORDS] += map(decode_entry, getattr(node, "workeroutput", {}).get(_RECORDED, ()))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Judge the records, where the option asks for it."""
    config = session.config
    records = config.stash[_RECORDS]
    if hasattr(config, "workeroutput"):
        from ragmon.core.record import encode  # noqa: PLC0415 - as said above

        config.workeroutput[_RECORDED] = [*map(encode, records)]
    elif config.getoption(_GATE) and not config.option.collectonly:
        from ragmon.core.errors import RagmonError  # noqa: PLC0415 - as said above
        from ragmon.export.text import text  # noqa: PLC0415 - as said above
        from ragmon.testing import Recorder  # noqa: PLC0415 - as said above

        is_good = False
        summary = "no test recorded a call: a test has the fixture `ragmon` and calls a function under @ragmon.trace\n"
        try:
            if records:
                report = Recorder.judge(records)
                summary, is_good = text(report), report.verdict != "fail"
        except RagmonError as error:
            summary = f"error: {error}\nhint: {error.hint}\n"
        config.stash[_SUMMARY] = summary
        if not is_good and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the verdicts."""
    if summary := terminalreporter.config.stash.get(_SUMMARY, ""):
        terminalreporter.section("ragmon")
        terminalreporter.write(summary)
