"""Probes: gold questions sent through the live pipeline, and what comes back."""
