"""The order of files: those that take longest come first, so that none of them runs alone at the end."""

from __future__ import annotations

LONGEST = (
    "server/test_mixed_attack.py",
    "server/test_drill.py",
    "server/test_paging.py",
    "server/test_faults_kill.py",
    "demo/test_demo.py",
    "monitor/test_scenarios.py",
    "alarms/test_detector_budget.py",
    "alarms/test_fortnights.py",
    "scoring/test_windows_laws.py",
    "gates/test_diagnosis.py",
    "export/test_rules.py",
    "export/test_runbook.py",
    "strangers/test_apps.py",
    "stats/test_two_samples.py",
    "monitor/test_release_splitting.py",
    "examples/test_frameworks.py",
    "examples/test_surroundings.py",
    "cli/test_doctor_chain.py",
    "cli/test_verify.py",
    "strangers/test_logs.py",
    "ingest/test_gold_embedding.py",
)
"""Longest first; the order of all others is that of their names."""


def place(path):
    """Where a file comes among the longest, given as a path with `/`; the others come after all of them."""
    return next((number for number, name in enumerate(LONGEST) if path.endswith(f"tests/{name}")), len(LONGEST))
