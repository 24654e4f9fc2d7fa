"""Runs the measurements: python bench [options], or make bench."""

import sys

from harness.cli import main

sys.exit(main())
