"""`ragmon serve`: receives what producers send, journals and scores it, and serves the results."""
