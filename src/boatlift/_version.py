"""The version of Boatlift."""

__version__ = "0.1.0"
