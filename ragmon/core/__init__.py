"""The lowest layer, used by all packages: the trace contract, gold items, gates as data, text, names and errors."""
