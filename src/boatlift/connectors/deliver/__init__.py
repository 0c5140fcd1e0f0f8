"""Sinks that deliver rows and keep no account of it: a function of the user's, and requests over HTTP."""

from boatlift.connectors.deliver.foreach import foreach
from boatlift.connectors.deliver.http import http_post

__all__ = ["foreach", "http_post"]
