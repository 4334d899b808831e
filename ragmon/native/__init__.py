"""The native core: a small Rust library that does the work of plain Python for the plain case, where it is there.

Plain Python is the law and the way back: without the library everything works, more slowly. `library` finds and loads
it; what it computes is used where the Python path of the same result is.
"""
