"""What the server costs: CPU a span, a long run, a start after a crash, and a tracing backend beside it."""
