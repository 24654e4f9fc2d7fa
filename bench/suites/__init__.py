"""The suites of measurements, a file each."""
