"""`python -m bench.serve`: its parts, one after the other."""

from bench.serve import durable, pages, producers, singles, spans

spans.main()
singles.main()
durable.main()
pages.main()
producers.main()
