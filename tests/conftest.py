"""Fixtures every test may use."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.chat_model import judge, model  # noqa: F401 - fixtures
from tests.support.examples import load_profile
from tests.support.order import place
from tests.support.small_disk import small_disk  # noqa: F401 - a fixture

load_profile()

# A server in the suite's own process loads gRPC, which must not meddle with programs that tests start by forking.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# What would be one warning in production is an error here, in programs that tests start as well.
os.environ.setdefault("RAGMON_STRICT", "1")

DATA = Path(__file__).parent / "data"
SHARED = Path(__file__).parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items):
    """Begin with the files that take longest."""
    items.sort(key=lambda item: place(item.path.as_posix()))


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


@pytest.fixture(scope="session")
def real():
    """Finds a real server's program by its name; without it the test is skipped, and fails where `CI` is set."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None:
            reason = f"{name} is not installed: run `make servers`"
            pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
        return path

    return find


@pytest.fixture
def configured(tmp_path):
    """Loads settings from the text of a ragmon.toml in the test's own folder, whatever the environment says."""
    from ragmon.config.load import load  # noqa: PLC0415 - most tests need no configuration

    def read(text: str = "", name: str = "ragmon.toml"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return load(path, environ={})

    return read
