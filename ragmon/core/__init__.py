"""What everything stands on: the trace contract, gold items, gates as data, text, constants, series names, errors."""
