"""What leaves ragmon: Prometheus series and reports."""
