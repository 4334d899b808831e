"""What judges do, kept apart from the application's own traffic."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ragmon.core.semconv import RAGMON_INTERNAL


@contextmanager
def apart(name: str) -> Iterator[None]:
    """Put what a judge's clients trace below a span that says whose work it is, and that nobody takes for a request.

    Where the application uses no OpenTelemetry there is nothing to keep apart.

    Args:
        name: The judge's.
    """
    trace = sys.modules.get("opentelemetry.trace")
    tracer = getattr(trace, "get_tracer", None)
    if tracer is None:
        yield
        return
    from opentelemetry.context import Context  # noqa: PLC0415 - loaded already

    internal = {RAGMON_INTERNAL: True}
    with tracer("ragmon").start_as_current_span(f"judge {name}", Context(), attributes=internal):
        yield
