"""Plans, runs, times and writes down measurements, with the standard library alone."""
