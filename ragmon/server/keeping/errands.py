"""What somebody wants done by the thread that writes."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


def settle(done: Future[Any], what: Callable[[], Any]) -> None:
    """Do it, and tell whoever asked what came of it.

    Args:
        done: Told of it.
        what: What is to be done.
    """
    try:
        done.set_result(what())
    except BaseException as error:  # noqa: BLE001 - whoever asked is told
        done.set_exception(error)
