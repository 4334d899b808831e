"""How many generated cases a property is tried with: RAGMON_EXAMPLES is `few`, `many`, or nothing for the usual number.

`make test` tries few. CI tries the usual number, the same ones every time: a red run must mean that the change broke
something. Many are for a night, or for a release.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SHARES = {"few": 0.1, "": 0.5, "many": 5.0}
PROFILE = os.environ.get("RAGMON_EXAMPLES", "")
USUAL = 100
"""Cases of a property that names no number."""


def cases(number):
    """How many cases a property is tried with where it asks for a number of them."""
    return max(10, round(number * SHARES[PROFILE]))


def load_profile():
    """Make the number that applies the one of every property, and what CI tries always the same.

    How long it takes to generate cases says nothing on a machine that is shared.
    """
    number = {"few": 20, "": USUAL, "many": 10 * USUAL}[PROFILE]
    fixed = bool(os.environ.get("CI")) and PROFILE != "many"
    checks = [HealthCheck.too_slow]
    settings.register_profile(
        "ragmon", max_examples=number, derandomize=fixed, deadline=None, suppress_health_check=checks
    )
    settings.load_profile("ragmon")
