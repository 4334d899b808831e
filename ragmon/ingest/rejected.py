"""The outcome of a line that is no record."""

from __future__ import annotations

from ragmon.core import constants
from ragmon.core.errors import shorten


class Rejected(Exception):  # noqa: N818 - an outcome that is counted, not a failure of the program
    """What is no record, and why.

    Args:
        reason: One of `ragmon.core.constants`.
        detail: What was found.
        lost: How many spans are lost by it, as far as they can be counted; 1 for anything else.
    """

    def __init__(self, reason: str, detail: str, lost: int = 1) -> None:
        super().__init__(detail)
        self.reason = reason
        self.lost = lost


def misfit(name: str, expected: str, found: object) -> Rejected:
    """A field holds what no shape allows.

    >>> str(misfit("qid", "a string or an integer", True))
    'qid is a string or an integer, not True'
    """
    return Rejected(constants.INVALID_SCHEMA, f"{name} is {expected}, not {shorten(found)}")
