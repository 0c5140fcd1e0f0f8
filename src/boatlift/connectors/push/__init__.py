"""Rows that clients push, from Python or over HTTP. A push is recorded before its client gets an answer."""

from boatlift.connectors.push.answers import reply
from boatlift.connectors.push.source import push

__all__ = ["push", "reply"]
