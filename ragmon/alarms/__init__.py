"""Alarms that page when it is true: e-detectors with a stated false-alarm budget."""

from ragmon.alarms.engine import Alarms, AlarmState, plain
from ragmon.alarms.pipeline import Edge
from ragmon.alarms.reach import Reach
from ragmon.alarms.terms import AlarmTerms, index_terms
from ragmon.alarms.watches import Watch, plan

__all__ = ["AlarmState", "AlarmTerms", "Alarms", "Edge", "Reach", "Watch", "index_terms", "plain", "plan"]
