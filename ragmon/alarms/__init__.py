"""Alarms: e-detectors with a stated budget of false alarms."""
