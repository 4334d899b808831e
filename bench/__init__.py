"""Benchmarks: ratios measured in one run, because machines are shared and noisy. `make bench` prints them."""
