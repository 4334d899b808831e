"""A real, small RAG pipeline over an invented harbour handbook: what `ragmon demo` watches."""
