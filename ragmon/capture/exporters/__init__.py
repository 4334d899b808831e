"""OTLP over HTTP: records as spans, totals as metrics, scores as evaluation events. Runs in the worker's thread.

OpenTelemetry's exporters encode spans and metrics; a session of ragmon's sends them. Used bare, the exporters send the
application's headers and certificates, take a redirect for a success, have no deadline for a slow response, read a
compressed one of any size, and do not report which spans a partial success rejected.
"""
