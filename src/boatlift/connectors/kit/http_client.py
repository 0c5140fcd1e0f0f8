"""HEAD and GET of an HTTP server: each request is sent again until there is a clear answer, or time is up.

An answer that contradicts the request or itself is refused in words: a range that was not asked for, a body of another
length than was announced, an encoding that was not accepted.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from functools import lru_cache
from types import MappingProxyType
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urlsplit

from boatlift.errors import InvalidError, UnavailableError
from boatlift.storage.bucket_client import RETRY_FOR, tries

if TYPE_CHECKING:
    import urllib3

_T = TypeVar("_T")

_NO_HEADERS: Mapping[str, str] = MappingProxyType({})
_CONNECT_SECONDS, _READ_SECONDS = 5.0, 20.0
_REDIRECTS = 5
_CHUNK = 1 << 20
_LONGEST_REST = 30.0
"""The most seconds that `Retry-After` delays the next attempt."""

PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers after which the same request may succeed later."""

_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class Resource(NamedTuple):
    """The state of a resource, as a server tells it.

    Attributes:
        size: In bytes; -1 if the server does not say.
        etag: The strong ETag, without quotes; otherwise empty.
        ranges: Whether the server sends ranges of bytes.
        changed_at: The time of the last change in milliseconds since 1970; 0 if the server does not say.
    """

    size: int
    etag: str
    ranges: bool
    changed_at: int


def shown(url: str) -> str:
    """Return a URL without its query and fragment, which may be secrets."""
    return urlsplit(url)._replace(query="", fragment="").geturl()


def is_header(name: object, value: object) -> bool:
    """Return whether HTTP carries a header with this name and value."""
    return (
        isinstance(name, str)
        and isinstance(value, str)
        and _HEADER.fullmatch(name) is not None
        and _VALUE.fullmatch(value) is not None
    )


def head(url: str, headers: Mapping[str, str] = _NO_HEADERS) -> Resource:
    """Ask for the state of a resource. A server without HEAD counts as one without ranges.

    Raises:
        FileNotFoundError: 404 or 410.
        InvalidError: `[NOT_ADMITTED]`; `[MISSING_EXTRA]`.
        UnavailableError: `[INPUT_UNAVAILABLE]` there is no answer, another refusal, or an answer that contradicts
            itself.
    """
    return _ask("asking for", "HEAD", url, headers, (405, 501), _resource, headers)


def read(url: str, begin: int, length: int, etag: str) -> memoryview | None:
    """Read a range of bytes of one state of a resource; None if the resource has another state. Raises as `head`."""

    def take(answer: urllib3.BaseHTTPResponse) -> memoryview | None:
        if answer.status in (412, 416) or _resource(answer).etag != etag:
            return None
        before = begin  # a server may send the whole
        if answer.status == 206:
            said, before = answer.headers.get("Content-Range", ""), 0
            found = _RANGE.fullmatch(said)
            if found is None or (int(found[1]), int(found[2])) != (begin, begin + length - 1):
                raise _contradiction(url, f"Content-Range {said!r} to a request for {asked['Range']}")
        content = bytearray()
        for part in answer.stream(_CHUNK):
            content += part[before:]
            before = max(0, before - len(part))
            if len(content) >= length:
                break
        return memoryview(content)[:length]

    asked = {"Range": f"bytes={begin}-{begin + length - 1}", "If-Match": f'"{etag}"'}
    return _ask("reading", "GET", url, asked, (206, 412, 416), take)


def fetch(url: str, headers: Mapping[str, str], etag: str, to: IO[bytes]) -> Resource | None:
    """Write the body of a resource to a file, in place of what the file has.

    Args:
        etag: The known state; empty if none is known.

    Returns:
        The state, with the size of the body; None if the server says that it is the known one. Raises as `head`.
    """

    def take(answer: urllib3.BaseHTTPResponse) -> Resource | None:
        if answer.status == 304:
            return None
        to.seek(0)
        to.truncate()
        to.writelines(answer.stream(_CHUNK))
        to.flush()
        return _resource(answer)._replace(size=to.tell())

    asked = {**headers, **({"If-None-Match": f'"{etag}"'} if etag else {})}
    return _ask("fetching", "GET", url, asked, (304,) if etag else (), take, headers)


def _ask(
    act: str,
    method: str,
    url: str,
    headers: Mapping[str, str],
    also: tuple[int, ...],
    take: Callable[[urllib3.BaseHTTPResponse], _T],
    secret: Collection[str] = (),
) -> _T:
    """Send a request until `take` has taken an answer with status 200 or one of `also`.

    Args:
        secret: The names of headers that no other host gets.
    """
    try:
        import urllib3
    except ImportError as error:
        missing = "files by HTTP need urllib3: pip install 'boatlift[http]', on driver and executors"
        raise InvalidError("MISSING_EXTRA", missing) from error
    where = shown(url)
    for last in tries(f"{act} {where}", RETRY_FOR):
        rest = 0.0
        try:
            answer = _pool(os.getpid()).request(
                method,
                url,
                headers={"Accept-Encoding": "identity", "User-Agent": "boatlift", **headers},
                preload_content=False,
                decode_content=False,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=_READ_SECONDS),
                retries=urllib3.Retry(
                    _REDIRECTS,
                    connect=0,
                    read=0,
                    other=0,
                    status=0,
                    redirect=_REDIRECTS,
                    respect_retry_after_header=False,  # it is kept below, within bounds
                    # Another host gets none of the user's headers.
                    remove_headers_on_redirect=[*secret, "Authorization", "Cookie", "Proxy-Authorization"],
                ),
            )
            try:
                if answer.status in (200, *also):
                    if (encoding := answer.headers.get("Content-Encoding", "identity")) != "identity":
                        raise _contradiction(url, f"Content-Encoding {encoding} though no encoding was accepted")
                    return take(answer)
                _refuse_for_good(url, answer.status)
                failure, after = f"status {answer.status}", answer.headers.get("Retry-After", "")
                rest = min(float(after), _LONGEST_REST) if after.isdecimal() else 0.0
            finally:
                answer.close()  # what is left of a body is not read
        except urllib3.exceptions.HTTPError as error:
            cause = getattr(error, "reason", None) or error  # the error itself names the whole URL, secrets included
            failure = " ".join(str(cause).replace(url, where).split())[:300]
        if last:
            raise UnavailableError("INPUT_UNAVAILABLE", f"{act} {where} failed ({failure}): run again once it answers")
        time.sleep(rest)
    raise AssertionError


def _refuse_for_good(url: str, status: int) -> None:
    """Raise if the same request would get the same status again."""
    if status in (404, 410):
        raise FileNotFoundError(f"{shown(url)} answers {status}")
    if status in (401, 403, 407):
        raise InvalidError(
            "NOT_ADMITTED", f"{shown(url)} answers {status}: give headers={{'Authorization': …}} that it accepts"
        )
    if status not in PASSING:
        raise UnavailableError(
            "INPUT_UNAVAILABLE", f"{shown(url)} answers {status}: correct the URL, or run again once it answers 200"
        )


def _resource(answer: urllib3.BaseHTTPResponse) -> Resource:
    headers = answer.headers
    length, etag, changed_at = headers.get("Content-Length", ""), headers.get("ETag", ""), 0
    with suppress(ValueError, TypeError):
        changed_at = int(parsedate_to_datetime(headers.get("Last-Modified", "")).timestamp() * 1000)
    strong = etag[1:-1] if len(etag) > 2 and etag.startswith('"') and etag.endswith('"') else ""
    size = int(length) if length.isdecimal() and answer.status == 200 else -1
    return Resource(size, strong, headers.get("Accept-Ranges", "").lower() == "bytes" and size >= 0, changed_at)


def _contradiction(url: str, what: str) -> UnavailableError:
    return UnavailableError(
        "INPUT_UNAVAILABLE",
        f"{shown(url)} answers with {what}, which is not HTTP: correct the server, or what is between, and run again",
    )


@lru_cache(maxsize=2)
def _pool(_process: int) -> urllib3.PoolManager:
    import urllib3

    return urllib3.PoolManager(4, maxsize=8)
