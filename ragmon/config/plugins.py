"""Importing what registers metrics: the modules ragmon.toml names, and installed distributions that announce some."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from importlib.metadata import entry_points
from typing import Final

from ragmon.config.problems import Problems

GROUP: Final = "ragmon.metrics"
"""The entry-point group of distributions that bring metrics."""


def import_plugins(modules: Sequence[str], problems: Problems) -> None:
    """Import every plugin; one that cannot be imported is reported, and the others still are.

    Args:
        modules: Modules by their dotted names.
        problems: Where problems are reported.
    """
    for index, module in enumerate(modules):
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a plugin is foreign code and may raise anything
            hint = f"{type(error).__name__}: {error}; a plugin is installed or stands on PYTHONPATH"
            problems.report(("plugins", index), "cannot be imported", value=module, hint=hint)
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # noqa: BLE001 - as above
            hint = f"{type(error).__name__}: {error}; uninstall or repair its distribution"
            problems.report(("plugins",), f"cannot load the installed {point.name}", value=point.value, hint=hint)
