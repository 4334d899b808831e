"""The admin API: a read-only HTTP application, the query service and the status service."""
