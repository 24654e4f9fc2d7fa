"""Finds the packages next to this folder."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))
