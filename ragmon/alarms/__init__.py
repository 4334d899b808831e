"""Alarms that page when it is true: e-detectors with a stated false-alarm budget."""

from ragmon.alarms.engine import Alarms, AlarmState, Edge, plain
from ragmon.alarms.frozen import AlarmTerms, index_terms
from ragmon.alarms.plan import Reach, Watch, plan

__all__ = ["AlarmState", "AlarmTerms", "Alarms", "Edge", "Reach", "Watch", "index_terms", "plain", "plan"]
