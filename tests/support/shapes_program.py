"""Calls every shape of a module once and exits: `python shapes_program.py shapes_plain`, in a folder with ragmon.toml.

Says, as JSON, the names of the shapes, and which errors reached the application.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))  # behind whatever ragmon is under test

import ragmon


def tracing(name: str) -> Callable[..., Any]:
    """`ragmon.trace` for a pipeline of this name, with arguments or without."""
    return lambda *function, **told: ragmon.trace(name, **told)(*function) if function else ragmon.trace(name, **told)


if __name__ == "__main__":
    installed = ragmon.install()
    module = import_module(f"tests.support.{sys.argv[1]}")
    raised = {}
    for number, (name, shape) in enumerate(module.SHAPES.items()):
        try:
            shape(tracing(name))
        except BaseException as error:  # noqa: BLE001 - the application's own, as it should be
            raised[name] = type(error).__name__
        if number % 20 == 0:
            installed.flush()
    installed.flush()
    installed.shutdown()
    json.dump({"shapes": list(module.SHAPES), "raised": raised}, sys.stdout)
