"""What broke: a gate's outcomes before and after, and what differs between them."""
