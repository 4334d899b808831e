"""From facts to numbers: the scorer, its windows, counts and snapshots, the calls producers report, and labels."""
