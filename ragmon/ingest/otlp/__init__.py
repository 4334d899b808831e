"""OTLP traces as records: decoded, put together request by request."""
