"""Settings become running parts: capture installed in an application, the embedded monitor, judges, probes and replay."""
