"""Alarms: e-detectors with a stated budget of false alarms."""

from ragmon.alarms.baselines import AlarmTerms, index_terms
from ragmon.alarms.pipelines import AcknowledgedAlarm, AlarmEngine, AlarmState, AlarmTransition, as_alert_line
from ragmon.alarms.plan import AlarmRule, Detectability, budget_divisor, plan

__all__ = [
    "AcknowledgedAlarm",
    "AlarmEngine",
    "AlarmRule",
    "AlarmState",
    "AlarmTerms",
    "AlarmTransition",
    "Detectability",
    "as_alert_line",
    "budget_divisor",
    "index_terms",
    "plan",
]
