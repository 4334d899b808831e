"""Finished OpenTelemetry spans, of ragmon and of other instrumentations, converted to records of the trace contract.

Pure functions on plain values: the span processor and the OTLP receiver convert their spans to `Span`.
"""
