"""Requests to a bucket: each is sent again until there is a clear answer, or time is up.

The client itself repeats nothing, because a request that is sent again by itself hides which one has won.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from boatlift.errors import RESTORE, DataError, InternalError, InvalidError, UnavailableError

if TYPE_CHECKING:
    from obstore.store import S3Store

RETRY_FOR = 60.0
"""The seconds for which a request without a clear answer is sent again."""

logger = logging.getLogger(__name__)

_T = TypeVar("_T")
_FIRST_REST, _LONGEST_REST = 0.05, 2.0
_SMALL_BYTES = 4 << 20
PART_BYTES = 2 << 20
"""The most bytes that one request reads, so that a slow line moves them in time."""

_DELETED_AT_ONCE = 1000
TIMEOUTS = ("20s", "300s")
"""For one request until its body is there; a larger object is written with the longer one."""

_CODE = re.compile(r"<Code>(\w+)</Code>")
_REFUSED = re.compile(
    r"status code: 40[13]\b|40[13] (Forbidden|Unauthorized)|AccessDenied|ExpiredToken|InvalidToken"
    r"|AuthorizationHeaderMalformed|configured region"
)
_LOUD = 1.0
"""The rest from which on a request that is sent again is told."""


def endpoint_of(given: str | None) -> str:
    """Return the address of a server: the given one, or that of the environment; empty for that of AWS."""
    return given or os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("AWS_ENDPOINT") or ""


class BucketClient:
    """A client of one prefix of a bucket. Thread-safe; of no use in a forked process.

    Args:
        url: `s3://BUCKET/PREFIX`.
        endpoint: The address of the server; empty for that of AWS.
        retry_for: The seconds for which a request without a clear answer is sent again.
        inputs: Whether the objects are inputs of a dataflow, which are read alone; errors say so.

    Attributes:
        small: For requests of few bytes.
    """

    def __init__(self, url: str, endpoint: str, retry_for: float, *, inputs: bool = False) -> None:
        self._url, self._endpoint, self.retry_for, self._inputs = url, endpoint, retry_for, inputs
        self._process = os.getpid()
        self.small, self._large = (self._client(timeout) for timeout in TIMEOUTS)

    def of(self, size: int) -> S3Store:
        """Return the client for an object of so many bytes."""
        return self._large if size > _SMALL_BYTES else self.small

    def ask(self, act: str, ask: Callable[[], _T], ends: Callable[[str], bool] = lambda _: False) -> _T:
        """Ask until there is an answer, or time is up.

        Args:
            ends: Tells from the text of an error that the object ends before what was asked for.

        Raises:
            FileNotFoundError: There is no such object.
            EndedError: As `ends` says.
            obstore.exceptions.PreconditionError: The object is not in the state that the request names.
        """
        from obstore.exceptions import BaseError, PreconditionError

        for last in tries(f"{act} in {self._url}", self.retry_for):
            self.check_process()
            try:
                return ask()
            except FileNotFoundError as error:
                self.refuse_for_good(act, error)
                raise
            except PreconditionError:
                raise
            except BaseError as error:
                if ends(str(error)):
                    raise EndedError from None
                self.refuse_for_good(act, error)
                if last:
                    unnamed = "" if "AWS_ACCESS_KEY_ID" in os.environ else "; AWS_ACCESS_KEY_ID is not set"
                    message = f"{act} in {self._url} failed: {words_of(error)}{unnamed}: run again once it answers"
                    raise UnavailableError("INPUT_UNAVAILABLE" if self._inputs else "STORE_FAILED", message) from error
        raise AssertionError

    def size(self, name: str) -> int | None:
        """Return the bytes of an object; None if there is none. Raises as `ask`."""
        import obstore

        try:
            return self.ask(f"asking for {name}", lambda: int(obstore.head(self.small, name)["size"]))
        except FileNotFoundError:
            return None

    def read(self, name: str, start: int, end: int) -> bytes:
        """Read an object's bytes from `start` to `end`, at most `PART_BYTES`; fewer, if it ends before.

        Raises:
            DataError: `[MISSING_OBJECT]`.
            UnavailableError: As `ask`.
        """
        import obstore

        def get() -> bytes:
            return bytes(obstore.get_range(self.small, name, start=start, length=end - start))

        try:
            return self.ask(f"reading {name}", get, ends=lambda text: "status code: 416" in text)
        except FileNotFoundError:
            raise self.missing(name) from None
        except EndedError:
            return b""

    def sizes(self, prefix: str) -> dict[str, int]:
        """Return the objects whose names begin with a prefix, with their sizes. Raises as `ask`."""
        import obstore

        folder = prefix.rpartition("/")[0]

        def listed() -> dict[str, int]:
            pages = obstore.list(self.small, prefix=folder or None, chunk_size=1000)
            return {each["path"]: int(each["size"]) for page in pages for each in page}

        found = self.ask(f"listing {prefix or 'the store'}", listed)
        return {name: size for name, size in found.items() if name.startswith(prefix)}

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; a missing one is no error. Raises as `ask`."""
        import obstore

        for at in range(0, len(names), _DELETED_AT_ONCE):
            some = names[at : at + _DELETED_AT_ONCE]
            with suppress(FileNotFoundError):
                self.ask(f"deleting {some[0]}", partial(obstore.delete, self.small, some))

    def missing(self, name: str) -> DataError:
        """Return the error of an object that is not there."""
        return DataError("MISSING_OBJECT", f"{name} is not in {self._url}: {RESTORE}")

    def refuse_for_good(self, act: str, error: BaseException) -> None:
        """Raise if an error is one that the same request would get again."""
        text = str(error)
        if "NoSuchBucket" in text:
            bucket = self._url.removeprefix("s3://").partition("/")[0]
            missing = f"there is no bucket {bucket}: make it, or give another URL"
            raise InvalidError("NO_INPUT" if self._inputs else "STORE_NOT_FOUND", missing) from error
        if _REFUSED.search(text):
            rights = "read and list" if self._inputs else "read, write, list and delete"
            raise InvalidError(
                "NOT_ADMITTED",
                f"{act} in {self._url} was refused ({words_of(error)}): give AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY "
                f"and AWS_REGION of a user with the rights to {rights} below this URL",
            ) from error

    def check_process(self) -> None:
        if os.getpid() != self._process:
            raise InternalError("INTERNAL", "a client of an object store is of no use in a forked process")

    def _client(self, timeout: str) -> S3Store:
        try:
            from obstore.store import S3Store
        except ImportError as error:
            missing = "obstore is not installed: pip install 'boatlift[cloud]'"
            raise InvalidError("MISSING_EXTRA", missing) from error
        bucket, _, prefix = self._url.removeprefix("s3://").partition("/")
        own: Any = {"endpoint": self._endpoint} if self._endpoint else {}
        return S3Store(
            bucket,
            prefix=prefix or None,
            client_options={
                "timeout": timeout,
                "connect_timeout": "5s",
                "allow_http": self._endpoint.startswith("http://"),
            },
            retry_config={"max_retries": 0},  # a request that is sent again by itself hides which one has won
            **own,
        )


def tries(act: str, seconds: float) -> Iterator[bool]:
    """Yield until time is up, with growing rests; True for the last time. After a second it is told."""
    rest, deadline = _FIRST_REST, time.monotonic() + seconds
    while (now := time.monotonic()) < deadline:
        yield False
        time.sleep(min(rest, max(0.0, deadline - now)))
        if rest < _LOUD <= 2 * rest:
            logger.warning("%s has no clear answer yet: trying for %.0f s", act, seconds)
        rest = min(2 * rest, _LONGEST_REST)
    yield True


def client_of(url: str, endpoint: str, *, inputs: bool = False) -> BucketClient:
    """Return the client of this process for the objects below a URL, with the credentials of now."""
    access = tuple(sorted(each for each in os.environ.items() if each[0].startswith("AWS_")))
    return _made(url, endpoint, inputs, os.getpid(), access)


@lru_cache(maxsize=32)
def _made(url: str, endpoint: str, inputs: bool, _process: int, _access: tuple[tuple[str, str], ...]) -> BucketClient:
    return BucketClient(url, endpoint, RETRY_FOR, inputs=inputs)


class EndedError(Exception):
    """An object ends before the range that was asked for."""


def words_of(error: BaseException | None) -> str:
    """Return what an error says, in few words: its code, or the beginning of its text."""
    text = str(error or "exists already, and is not there")
    code = _CODE.search(text)
    return code[1] if code else " ".join(text.partition("Debug source")[0].rpartition(" - ")[2].split())[:300]
