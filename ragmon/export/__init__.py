"""Exporters: Prometheus series, rules, dashboards, reports, diagnoses and the status page."""
