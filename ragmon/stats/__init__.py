"""Estimates and histograms in exact integers; the standard library only.

A graded score is held as an integer number of micro-units (1e-6), so sums are the same in any order on any
machine.
"""

from ragmon.stats.histograms import NOT_POSITIVE, bucket, bucket_edge, bucket_value, buckets, quantile
from ragmon.stats.intervals import Z95, clustered, graded, needed_for_pass, needed_to_decide, wilson
from ragmon.stats.units import MICRO, micro

__all__ = [
    "MICRO",
    "NOT_POSITIVE",
    "Z95",
    "bucket",
    "bucket_edge",
    "bucket_value",
    "buckets",
    "clustered",
    "graded",
    "micro",
    "needed_for_pass",
    "needed_to_decide",
    "quantile",
    "wilson",
]
