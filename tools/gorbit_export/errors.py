"""Errors that the command line tells apart."""

from __future__ import annotations


class UsageError(Exception):
    """An argument is invalid; the message is one line for the user."""
