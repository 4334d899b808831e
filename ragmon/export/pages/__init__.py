"""The pages of a monitor: Jinja2 templates, charts as SVG, and the files that a browser fetches with them."""
