"""Verdicts on counts: gates evaluated, coverage, comparisons of runs and releases, and the diagnosis of a failing gate."""
