"""Incident scenarios: production streams of real answers, broken in known ways at known times, and what alarms find.

`python -m bench.scenario` prints the table. What users asked and what a real pipeline answered is recorded; when they
asked, how long it took and what broke is simulated with a fixed seed.
"""

from bench.scenario.incidents import Incident
from bench.scenario.stream import Stream
from bench.scenario.verdicts import Edge, judge

__all__ = ["Edge", "Incident", "Stream", "judge"]
