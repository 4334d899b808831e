"""OTLP over HTTP: records as spans, totals as metrics, scores as evaluation events. Runs in the worker's thread.

The messages are built from OpenTelemetry's own protocol classes and sent by the standard library's HTTP client. The
SDK's exporters are not used: they read headers, certificates, proxies and credentials from environment variables of the
application, have no deadline for a slow response, and do not report which spans a partial success rejected.
"""
