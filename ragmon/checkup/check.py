"""One thing that was tried."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One thing that was tried.

    Attributes:
        name: What.
        ok: Whether it is as it should be.
        told: What was found.
        hint: What would be right, where it is not.
    """

    name: str
    ok: bool
    told: str
    hint: str = ""
