"""The metrics: each is a mean of per-request scores in [0, 1] over the requests it applies to.

Importing this package registers the built-in metrics.
"""

from ragmon.metrics import builtin
from ragmon.metrics.base import Metric, build, families, register

__all__ = ["Metric", "build", "builtin", "families", "register"]
