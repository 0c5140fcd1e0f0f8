"""At-least-once sinks: a function of the user's, requests over HTTP, the standard output."""

from boatlift.connectors.deliver.foreach import foreach
from boatlift.connectors.deliver.http import http_post
from boatlift.connectors.deliver.stdout import stdout

__all__ = ["foreach", "http_post", "stdout"]
