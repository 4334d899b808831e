"""The journal: what was accepted, on disk, before anybody was told so."""
