"""The `ragmon` command line: data goes to stdout, log and progress to stderr; scripts can rely on the exit code."""
