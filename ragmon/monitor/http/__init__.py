"""The HTTP side of a monitor, embedded or in a server: listening ports, limits of requests, and the admin port."""
