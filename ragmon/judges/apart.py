"""What judges do, kept apart from the application's own traffic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ragmon.attributes import RAGMON_INTERNAL


@contextmanager
def apart(name: str) -> Iterator[None]:
    """Put what a judge's clients trace below a span that says whose work it is, and that nobody takes for a request.

    Args:
        name: The judge's.
    """
    from opentelemetry import trace  # noqa: PLC0415 - loaded with the first judgement
    from opentelemetry.context import Context  # noqa: PLC0415

    tracer = trace.get_tracer("ragmon")
    with tracer.start_as_current_span(
        f"judge {name}", Context(), attributes={RAGMON_INTERNAL: True}, record_exception=False
    ):
        yield
