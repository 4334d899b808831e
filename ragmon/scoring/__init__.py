"""From facts to numbers: the scorer, windows, counts, snapshots, producers' call totals, and labels."""
