"""What `@ragmon.trace` costs beside the decorators of other tracers."""
