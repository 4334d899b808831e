"""The doors: HTTP and gRPC in front of the desk, with their limits; nothing here knows a journal."""
