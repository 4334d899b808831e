"""Judges: a language model, or a function of the application, that scores answers in the process that has their text.

A judge is a proxy for human judgement. Its score is a metric (`judge_<name>`) like any other, but never gets a gate by
default.
"""
