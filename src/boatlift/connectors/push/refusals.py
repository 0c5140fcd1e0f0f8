"""The HTTP answers to refused pushes: a status, headers, and JSON with the condition."""

from __future__ import annotations

import http
import logging

import msgspec

from boatlift.errors import BoatliftError, FencedError, InternalError, UnavailableError

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1
KEYS_RETRY_SECONDS = 60

_STATUS = {
    "BAD_ROW": 400,
    "BAD_OPTION": 400,
    "BAD_REQUEST": 400,
    "BAD_TOKEN": 401,
    "CROSS_SITE": 403,
    "NOT_SERVED": 404,
    "TOO_SLOW": 408,
    "PUSH_TOO_LARGE": 413,
    "KEY_REUSED": 422,
    "KEYS_FULL": 429,
    "HEADERS_TOO_LARGE": 431,
}


class Refusal(msgspec.Struct, frozen=True):
    """A refusal as HTTP has it.

    Attributes:
        status: The status code.
        headers: All but those about the body's length and the connection.
        body: JSON.
    """

    status: int
    headers: dict[str, str]
    body: bytes


def refusal_of(error: Exception) -> Refusal:
    """Return the answer for an error. An error that is not Boatlift's is logged, and answered as `[INTERNAL]`."""
    if not isinstance(error, BoatliftError):
        logger.error("a push failed", exc_info=error)
        error = InternalError("INTERNAL", f"{type(error).__name__}: see the log of the dataflow's process")
    passes = isinstance(error, UnavailableError | FencedError)
    status = _STATUS.get(error.condition, 503 if passes else 500)
    headers = {"content-type": "application/json"}
    if passes:
        headers["retry-after"] = str(KEYS_RETRY_SECONDS if error.condition == "KEYS_FULL" else RETRY_SECONDS)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Refusal(status, headers, msgspec.json.encode({"condition": error.condition, "message": error.message}))


def as_response(refusal: Refusal) -> bytes:
    """Return a whole response, the last one of its connection."""
    headers = {**refusal.headers, "content-length": str(len(refusal.body)), "connection": "close"}
    lines = [f"HTTP/1.1 {refusal.status} {http.HTTPStatus(refusal.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + refusal.body
