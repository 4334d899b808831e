"""ragmon.toml: read, checked with line numbers, and resolved into settings. Imported by the application layer only."""
