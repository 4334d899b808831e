"""Capture: what runs inside other people's request path, and the thread beside it.

On the request thread: a draw, one small object, a bounded queue. Everything else happens in `worker`.
"""
