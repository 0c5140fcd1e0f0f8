"""The command line: shows and commands; owns no logic."""

from boatlift.console.app import main

__all__ = ["main"]
