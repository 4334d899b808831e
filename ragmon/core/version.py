"""The installed version of ragmon."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def current() -> str:
    """The installed version; `0+unknown` where the package was never installed."""
    try:
        return version("ragmon")
    except PackageNotFoundError:
        return "0+unknown"
