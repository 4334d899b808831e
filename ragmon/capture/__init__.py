"""Capture: code that runs in the application's request path, and the worker thread beside it.

On the request thread: a random draw, one small object, an append to a bounded queue. Everything else happens in
`worker`.
"""
