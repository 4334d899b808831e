"""What `ragmon.install` sets up and every decorated function reads: one runtime for the process, or none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from ragmon import names
from ragmon.capture.calls import Call, Site, running, seen, threshold
from ragmon.capture.notices import warn_once

if TYPE_CHECKING:
    from ragmon.capture.paths import Path

CODES: Final = 32
"""Kinds of errors of a pipeline that are counted by name; all others are counted together."""
_PADDING: Final = 8
"""Spaces and the like that may surround a refusal token."""


@dataclass(frozen=True)
class Terms:
    """What is configured for one pipeline.

    Args:
        rate: Share of calls that are kept.
        refusals: Folded refusal tokens, to tell a refusal by a cheap look.
        slow_above: Seconds from which a call counts as slow; None where nothing is slow.
        id_from: Path from a document to its id.
    """

    rate: float = 1.0
    refusals: frozenset[str] = frozenset({names.REFUSAL_TOKEN})
    slow_above: float | None = None
    id_from: Path | None = None


class Tally:
    """All calls of one pipeline, sampled or not.

    Attributes:
        live: User calls by stratum.
        probes: Calls that asked a gold question, by stratum.
        errors: User calls that raised, by the name of what they raised.
    """

    def __init__(self) -> None:
        self.live = {stratum: count() for stratum in names.STRATA}
        self.probes = {stratum: count() for stratum in names.STRATA}
        self.errors: dict[str, count[int]] = {}

    def count_error(self, code: str) -> None:
        """Count a user call that raised."""
        counter = self.errors.get(code)
        if counter is None:
            counter = self.errors.setdefault(code if len(self.errors) < CODES else names.OTHER, count())
        next(counter)


class Plan:
    """What holds for one decorated function under one runtime: looked up once, read by every call."""

    __slots__ = ("id_from", "live", "longest", "of", "p", "pipeline", "refusals", "slow_above", "tally", "threshold")

    def __init__(self, of: Runtime, pipeline: str, rate: float, terms: Terms, tally: Tally) -> None:
        self.of = of
        self.pipeline = pipeline
        self.p = rate
        self.threshold = threshold(rate)
        self.refusals = terms.refusals
        self.longest = max(map(len, terms.refusals), default=0) + _PADDING
        self.slow_above = float("inf") if terms.slow_above is None else terms.slow_above
        self.id_from = terms.id_from
        self.tally = tally
        self.live = tally.live


class Runtime:
    """The installed capture.

    Args:
        submit: Hands a finished call to the worker; never blocks, never raises.
        pipeline: Name of pipelines that have none of their own.
        terms: What is configured for a pipeline, by its name.
        keep_all: Every call is kept, whatever rates say.
    """

    def __init__(
        self,
        submit: Callable[[Call], None],
        *,
        pipeline: str = names.DEFAULT_PIPELINE,
        terms: Callable[[str], Terms] = lambda _: Terms(),
        keep_all: bool = False,
    ) -> None:
        self.submit = submit
        self._pipeline = pipeline
        self._terms = terms
        self._keep_all = keep_all
        self._tallies: dict[str, Tally] = {}

    def plan(self, site: Site) -> Plan:
        """What holds for a decorated function; its own sample rate goes before the configured one."""
        pipeline = self._pipeline if site.name is None else site.name
        terms = self._terms(pipeline)
        rate = 1.0 if self._keep_all else terms.rate if site.sample is None else site.sample
        return Plan(self, pipeline, rate, terms, self._tallies.setdefault(pipeline, Tally()))

    def totals(self) -> dict[tuple[str, str, str], int]:
        """All calls so far by pipeline, source and stratum; of probes only what there was."""
        found = {}
        for pipeline, tally in list(self._tallies.items()):
            for stratum in names.STRATA:
                found[pipeline, names.LIVE, stratum] = seen(tally.live[stratum])
                if probes := seen(tally.probes[stratum]):
                    found[pipeline, names.PROBE, stratum] = probes
        return found

    def errors(self) -> dict[tuple[str, str], int]:
        """User calls that raised, by pipeline and the name of what they raised."""
        return {
            (pipeline, code): seen(counter)
            for pipeline, tally in list(self._tallies.items())
            for code, counter in list(tally.errors.items())
        }


current: Runtime | None = None
"""The runtime of this process; None where `ragmon.install` was not called."""
_awaited = True
_orphans = count()


def use(runtime: Runtime | None) -> Runtime | None:
    """Make a runtime the process's own; returns the one it replaces."""
    global current  # one process has one capture, and decorated functions must find it without a lookup
    expect_none()
    before, current = current, runtime
    return before


def expect_none() -> None:
    """Say nothing where no runtime is installed: that is how it should be."""
    global _awaited  # noqa: PLW0603 - as above
    _awaited = False


def not_installed() -> None:
    """Warn once that nothing is monitored, unless that is how it should be."""
    if _awaited:
        warn_once("ragmon.install() was not called: functions under @ragmon.trace run as they are, unmonitored")


def inside(what: str) -> Call | None:
    """The kept call that runs here; what is said where none runs, kept or not, is counted and warned of once."""
    call = running()
    if call is None:
        if current is None:
            not_installed()
        else:
            next(_orphans)
            warn_once(f"ragmon.{what}() was called outside a traced call; it is counted and ignored")
    return call if isinstance(call, Call) else None


def orphans() -> int:
    """How much was said outside a traced call."""
    return seen(_orphans)
