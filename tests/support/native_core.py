"""The native core in tests: whether it is here, and both paths on the same input."""

from __future__ import annotations

import pytest

from ragmon.native.library import native_core

needs_native = pytest.mark.skipif(
    native_core().functions is None, reason=f"the native core is not here: {native_core()}"
)
"""Marks what tests the native core itself; without one, everything else is tested in plain Python."""
