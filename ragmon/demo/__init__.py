"""`ragmon demo`: a small but real RAG pipeline over the handbook of an invented harbour, monitored live."""

from __future__ import annotations

import click

from ragmon.cli.main import INTERRUPTED

INCIDENTS = ("index_drift", "refusal_wave", "hallucination", "citation_break", "latency")


@click.command()
@click.option("--seconds", type=click.FloatRange(10, 3600), default=60, show_default=True, help="How long it runs.")
@click.option("--incident", type=click.Choice(INCIDENTS), default="index_drift", show_default=True, help="What breaks.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port of /metrics. Default: any free one.")
def demo(seconds: float, incident: str, port: int) -> int:
    """Run a real small RAG pipeline under @ragmon.trace and break it half-way.

    Users and gold probes ask it questions; the gates are shown live and served on /metrics. At the end it says which
    gates turned red and when, and where the trace log lies.

    Exit codes: 0, 3 if it cannot start, 130 after Ctrl-C.
    """
    from rich.console import Console  # noqa: PLC0415 - `--help` must not load it

    from ragmon.demo.show import run  # noqa: PLC0415 - as above

    return 0 if run(seconds, incident, address=f"127.0.0.1:{port}", console=Console()) else INTERRUPTED
