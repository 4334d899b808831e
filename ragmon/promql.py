"""Matchers of PromQL for label values as the exporter writes them; rules and dashboards select with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from ragmon.core.series_names import label

_SPECIAL: Final = re.compile(r"[\\.+*?()|\[\]{}^$]")
"""What means something in Prometheus' regular expressions."""


def quoted(text: str) -> str:
    """A PromQL string: JSON's escapes are among those it has."""
    return json.dumps(text, ensure_ascii=False)


def equals(name: str, value: str) -> str:
    r"""A matcher for one value.

    >>> print(equals("gate", 'a "b"'))
    gate="a \"b\""
    """
    return f"{name}={quoted(label(value))}"


def among(name: str, values: Iterable[str], *, others: bool = False) -> str:
    r"""A matcher for several values, or for all others.

    >>> print(among("gate", ["a", "b.c"]))
    gate=~"a|b\\.c"
    """
    pattern = "|".join(_SPECIAL.sub(r"\\\g<0>", label(value)) for value in values)
    return f"{name}{'!~' if others else '=~'}{quoted(pattern)}"
