"""Estimates, tests and histograms, with the standard library only.

A graded score is stored as an integer number of micro-units (1e-6), so sums are the same in any order on any machine.
"""

from ragmon.stats.histograms import MICRO, NOT_POSITIVE, bucket, bucket_edge, bucket_value, buckets, micro, quantile
from ragmon.stats.intervals import (
    Z95,
    clustered,
    clustered_or_missing,
    graded,
    needed_for_pass,
    needed_to_decide,
    wilson,
)

__all__ = [
    "MICRO",
    "NOT_POSITIVE",
    "Z95",
    "bucket",
    "bucket_edge",
    "bucket_value",
    "buckets",
    "clustered",
    "clustered_or_missing",
    "graded",
    "micro",
    "needed_for_pass",
    "needed_to_decide",
    "quantile",
    "wilson",
]
