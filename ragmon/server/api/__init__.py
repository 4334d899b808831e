"""What is shown: the admin port and its answers; nothing here changes anything."""
