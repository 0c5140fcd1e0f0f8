"""Rows that are pushed: from Python, or over HTTP. Recorded before whoever pushes them hears of it."""

from boatlift.connectors.push.source import push

__all__ = ["push"]
