"""`python -m bench.serve`: both parts, one after the other."""

from bench.serve import durable, spans

spans.main()
durable.main()
