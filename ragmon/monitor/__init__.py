"""Settings become running parts: capture in an application, the embedded monitor, judges, probes and replay."""
