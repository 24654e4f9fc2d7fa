"""Makes a site of the documentation (make site)."""
