"""Naive scorers written from the documents alone, which the real code is compared with."""
