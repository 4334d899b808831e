"""OTLP over HTTP: records as spans, totals as metrics, scores as evaluation events. Runs in the worker's thread.

The messages are built from OpenTelemetry's own protocol classes and sent over the standard library's HTTP client. The
SDK's exporters fill headers, certificates, proxies and credentials from variables that belong to the application,
follow the peer's pace byte by byte, and tell nobody which spans a partial success refused.
"""

from ragmon.capture.exporters.otlp import OtlpExporter
from ragmon.capture.exporters.scores import Scored, ScoreExporter

__all__ = ["OtlpExporter", "ScoreExporter", "Scored"]
