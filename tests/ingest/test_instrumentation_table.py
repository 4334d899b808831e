"""The table of instrumentations says what becomes of real spans, and the installed packages still write such spans."""

from __future__ import annotations

import shutil
from importlib.metadata import PackageNotFoundError, version

import pytest

from ragmon.ingest.otlp import read
from tests.support import instrumentation_table as made
from tests.support.instrumentation_table import INSTRUMENTATIONS
from tests.support.otlp_requests import export
from tests.support.recorded_agents import NAMES

rows = pytest.mark.parametrize("name", INSTRUMENTATIONS)


def test_the_page_has_the_table_that_the_recordings_make():
    """`python -m tests.support.instrumentation_table` writes it anew."""
    assert made.PAGE.read_text(encoding="utf-8") == made.page()


def test_every_recording_has_a_row():
    assert {path.stem for path in made.RECORDINGS.glob("*.json")} == set(INSTRUMENTATIONS)
    assert set(NAMES) == set(made.AGENTS)


@rows
def test_what_the_spans_carry_is_read(name):
    """No cell says that the spans carry a field which is not read."""
    recording, options = made.load(name), INSTRUMENTATIONS[name].options
    assert made.UNREAD not in made.cells(recording, options).values()
    assert all(mapped.record is not None for mapped in made.mapped(recording, options))


@rows
def test_the_same_is_read_off_the_wire(name):
    """OTLP's receiver decodes only the attributes that are read."""
    recording, options = made.load(name), INSTRUMENTATIONS[name].options
    body = export(recording.spans).SerializeToString()
    arrived = recording._replace(spans=[span.span() for span in read(body, json=False).external])
    assert made.mapped(arrived, options) == made.mapped(recording, options)


@pytest.mark.slow
@rows
def test_the_installed_packages_leave_what_the_row_says(name):
    row = INSTRUMENTATIONS[name]
    if row.program[0].endswith(".mjs"):
        missing = [] if shutil.which("node") and made.node_modules(name) else ["node with the packages of the row"]
    else:
        missing = [package for package in row.packages if not _is_installed(package)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    assert made.cells(made.run(name), row.options) == made.cells(made.load(name), row.options)


def _is_installed(package):
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False
