"""What is kept: requests put together, journalled, scored and counted, by one thread."""
