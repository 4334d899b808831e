"""`ragmon demo`: a small but real RAG pipeline over the handbook of an invented harbour, monitored live."""

from __future__ import annotations

import click

INCIDENTS = ("index_drift", "refusal_wave", "hallucination", "citation_break", "latency")


@click.command()
@click.option(
    "--for", "seconds", type=click.FloatRange(1), default=3600, show_default=True, help="Seconds after which it ends."
)
@click.option("--incident", type=click.Choice(INCIDENTS), default="index_drift", show_default=True, help="What breaks.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of the page. Default: 9464, or any if it is taken.")
def demo(seconds: float, incident: str, port: int | None) -> None:
    """Run a real small RAG pipeline under @ragmon.trace, and break it.

    Users and gold probes ask it questions. After some 15 seconds, when every gate has passed, an incident happens, and
    gates turn red here, on the page and on /metrics. Then it goes on until Ctrl-C, and says which gates turned red and
    when, that no call was lost, and where the trace log is. With --for it ends by itself, once a gate is red.

    Exit codes: 0 also after Ctrl-C, 3 if it cannot start.
    """
    from rich.console import Console  # noqa: PLC0415 - `--help` must not load it

    from ragmon.demo.show import run  # noqa: PLC0415 - as above

    run(seconds, incident, port=port, console=Console())
