"""OTLP requests decoded and assembled into one record per request of the application."""
