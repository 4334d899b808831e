"""Readers: input from outside becomes records of the trace contract, or is rejected with a counted reason."""
