"""`python -m ragmon` is `ragmon`."""

from ragmon.cli import main

main()
