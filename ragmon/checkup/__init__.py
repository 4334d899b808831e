"""Is everything in place: gold, baselines, each link of the chain to `/metrics`; and what alarms can find.

    a call -> capture -> exporter -> (collector) -> `ragmon serve` -> journal -> scored -> `/metrics`

The links up to the exporter are tried in this process. Where records are sent elsewhere, one is, and is looked for.
"""

from collections.abc import Iterator

from ragmon.checkup import quarantine
from ragmon.checkup.chain import WAIT, chain
from ragmon.checkup.check import Check
from ragmon.checkup.here import RATES, here, reaches
from ragmon.checkup.instrumentations import Found, instrumentations
from ragmon.checkup.probes import probes
from ragmon.config.settings import Settings

__all__ = ["RATES", "WAIT", "Check", "Found", "checks", "instrumentations", "reaches"]


def checks(settings: Settings, *, admin: str | None = None, wait: float = WAIT) -> Iterator[Check]:
    """Try everything a monitor needs, in the order in which a record meets it.

    Args:
        settings: The configuration, without problems.
        admin: The address of the server's admin port; None takes the one of the configuration.
        wait: Seconds in which a record that was sent must arrive.
    """
    yield from here(settings)
    yield from probes(settings)
    if settings.export.endpoint is None:
        yield from quarantine.on_disk(settings)
    if settings.export.endpoint is not None:
        yield from chain(settings, admin or f"http://{settings.serve.admin}", wait)
    else:
        yield Check("server", ok=True, told="not tried: there is no `[export] endpoint`, records stay in this process")
