"""A sink that posts rows to a URL."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import xxhash

from boatlift.connectors.deliver.sink import DeliveringSink, StepPart
from boatlift.connectors.kit import checked_options, whole_number
from boatlift.errors import InvalidError, UnavailableError

if TYPE_CHECKING:
    import urllib3

_TYPES = {"json": "application/json", "lines": "application/x-ndjson"}

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")

LONGEST_REST = 30
"""The most seconds between two attempts, whatever `Retry-After` says: a waiting task delays the end of a run."""

_PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which the same request may succeed later."""


@checked_options("bl.http_post")
def http_post(
    url: str,
    *,
    format: Literal["json", "lines"] = "json",  # noqa: A002
    headers: Mapping[str, str] | None = None,
    rows_per_request: int = 1000,
    parts: int = 1,
    timeout: float = 30.0,
    tries: int = 5,
) -> DeliveringSink:
    """Return a sink that posts the rows of each step to a URL, at least once.

    Each request has the header `Idempotency-Key`, with dataflow, store, sink, step, part, request and content. A step
    that is delivered again has the same requests with the same keys, as long as `format`, `rows_per_request` and
    `parts` stay. So delivery is exactly once if the receiver ignores keys that it knows. A task of a killed process may
    post late, after the next process has posted later steps: a receiver that overwrites must compare the number of the
    step.

    An answer 2xx is success. After 408, 425, 429, 500, 502, 503, 504, a timeout or a failed connection, a request is
    retried with exponential backoff, or as `Retry-After` says, up to half a minute. Any other answer is a refusal: the
    dataflow stops, and nothing is lost.

    Args:
        url: `http://…` or `https://…`.
        format: `json`: a body is an array of objects, one a row. `lines`: one object a line.
        headers: Further headers, such as `Authorization`; they are kept in memory only.
        rows_per_request: The most rows of a request.
        parts: The number of requests of a step at the same time, each in a task of its own.
        timeout: Seconds to wait for a connection, and for an answer.
        tries: The attempts at a request before the sink counts as failed. The host then delivers the step again, a few
            times, with backoff.

    Raises:
        InvalidError: `[BAD_OPTION]`, `[MISSING_EXTRA]`.

    Examples:
        >>> flights.sink("posted", bl.http_post("http://127.0.0.1:8080/flights"))
    """
    try:
        import urllib3
    except ImportError:
        raise InvalidError(
            "MISSING_EXTRA", "bl.http_post needs urllib3: pip install 'boatlift[http]', on driver and executors"
        ) from None
    place = urlsplit(str(url))
    try:
        urllib3.util.parse_url(str(url))
        is_place = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:  # the error names the whole URL
        is_place = False
    if not is_place:
        shown = place._replace(query="", fragment="").geturl()
        raise InvalidError("BAD_OPTION", f"url is {shown!r}: give http://HOST/… or https://HOST/…")
    if place.username is not None or place.password is not None:
        raise InvalidError("BAD_OPTION", "the url holds a password: give it in headers, as Authorization")
    if format not in _TYPES:
        raise InvalidError("BAD_OPTION", f"format is {format!r}: choose 'json' or 'lines'")
    for name, number in (("rows_per_request", rows_per_request), ("parts", parts), ("tries", tries)):
        whole_number(name, number)
    if not _is_seconds(timeout):
        raise InvalidError("BAD_OPTION", f"timeout is {timeout!r}: give seconds, more than 0")
    for name, value in (headers or {}).items():
        if not _is_header(name, value):
            raise InvalidError("BAD_OPTION", f"header {name!r} has characters that HTTP does not carry: encode them")
    own = [name for name in headers or {} if name.lower() in ("idempotency-key", "content-type")]
    if own:
        raise InvalidError("BAD_OPTION", f"header {own[0]} is the sink's own: leave it out")
    shown = place._replace(query="", fragment="").geturl()
    about = {
        "kind": "http_post",
        "url": shown,
        "format": format,
        "rows_per_request": rows_per_request,
        "parts": parts,
        "exactly_once_if": "the receiver ignores an Idempotency-Key that it knows",
    }
    post = _Post(url, shown, format == "lines", dict(headers or {}), rows_per_request, timeout, tries)
    return DeliveringSink(post, about, parts)


@dataclass(frozen=True, slots=True, repr=False)
class _Post:
    """Posts the rows of a part, one request after the other."""

    url: str
    shown: str
    lines: bool
    headers: dict[str, str]
    rows: int
    timeout: float
    tries: int

    def __call__(self, part: StepPart) -> None:
        import urllib3

        with urllib3.PoolManager(1) as pool:
            for number, begin in enumerate(range(0, len(part.texts), self.rows)):
                texts = part.texts.slice(begin, self.rows).to_pylist()
                body = ("\n".join(texts) + "\n" if self.lines else "[" + ",\n".join(texts) + "]").encode()
                self._post(pool, f"{part.key}/{number}/{xxhash.xxh3_64_hexdigest(body)}", body)

    def _post(self, pool: urllib3.PoolManager, key: str, body: bytes) -> None:
        """Post a body until it is accepted.

        The key has the number of the request, because two requests may have equal rows. It also has a hash of the
        content: after a change of options, the receiver does not confuse new rows with known ones.
        """
        import urllib3

        kind = _TYPES["lines" if self.lines else "json"]
        again = urllib3.Retry(
            self.tries - 1,
            redirect=False,
            allowed_methods=None,
            status_forcelist=_PASSING,
            backoff_factor=0.2,
            backoff_max=LONGEST_REST,
            retry_after_max=LONGEST_REST,
            raise_on_status=False,
        )
        try:
            answer = pool.request(
                "POST",
                self.url,
                body=body,
                headers={**self.headers, "Content-Type": kind, "Idempotency-Key": key},
                timeout=self.timeout,
                retries=again,
                redirect=False,
            )
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error  # the error itself names the whole URL, secrets included
            raise UnavailableError(
                "SINK_FAILED",
                f"{self.shown} did not answer request {key}: {_one_line(str(cause))}; the step is delivered again",
            ) from None
        if 200 <= answer.status < 300:
            return
        text = _one_line(answer.data.decode(errors="replace"))
        said = f"{self.shown} answered {answer.status} to request {key}{text and f': {text}'}"
        if answer.status in _PASSING:
            raise UnavailableError("SINK_FAILED", f"{said}; the step is delivered again")
        raise UnavailableError("SINK_REFUSED", f"{said}; correct the receiver, or the options, and run again")


def _is_header(name: object, value: object) -> bool:
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and _HEADER.fullmatch(name) is not None
        and _VALUE.fullmatch(value) is not None
    )


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < float("inf")
