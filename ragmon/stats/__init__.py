"""Estimates, tests and histograms, with the standard library only.

A graded score is stored as an integer number of micro-units (1e-6), so sums are the same in any order on any machine.
"""
