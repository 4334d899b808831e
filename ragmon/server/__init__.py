"""`ragmon serve`: what producers send is journalled, scored and shown."""
