"""Receivers for OTLP over HTTP and gRPC, with their limits; they pass requests on to a `Consumer`."""
