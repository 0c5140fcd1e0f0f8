"""Sinks that deliver rows and keep no account of it: a function of the user's, requests over HTTP, a print."""

from boatlift.connectors.deliver.foreach import foreach
from boatlift.connectors.deliver.http import http_post
from boatlift.connectors.deliver.stdout import stdout

__all__ = ["foreach", "http_post", "stdout"]
