"""Readers: bytes from outside become records of the trace contract, or a counted reason why not."""
