"""The processing pipeline of the server: one thread decodes, assembles, journals, scores and counts requests."""
