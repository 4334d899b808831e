"""Reads ragmon.toml, reports problems with their line numbers, and resolves it into settings.

Only the application layer imports this package.
"""
