"""Verdicts on counts: gates, their coverage, comparisons of runs and releases, and why a gate fails."""
