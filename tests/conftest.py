"""Fixtures every test may use."""

from __future__ import annotations

from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def data() -> Path:
    """The test data that lies in the repository."""
    return DATA


@pytest.fixture(scope="session")
def shared() -> Path:
    """The larger data sets beside the repository; a test that needs them is skipped where they are absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the larger data sets are not here: {SHARED}")
    return SHARED
