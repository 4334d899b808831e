"""Judges: a language model, or a function of the application, that gives answers a score where their text is.

A judge is a proxy. Its score is a metric like any other (`judge_<name>`), and never a gate of its own.
"""
