"""The kinds of work that are measured, a file each."""
