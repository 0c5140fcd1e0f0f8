"""The command line: it parses options, calls `boatlift.runtime.inspect` or `boatlift.api`, and prints."""

from boatlift.console.app import main

__all__ = ["main"]
