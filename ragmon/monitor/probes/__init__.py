"""Probes: gold questions sent through the live pipeline, and the records of the answers."""
