"""The address of a server, its token, and the requests that it admits.

It admits no request from foreign web pages, none for other hosts, and none without the token.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from functools import lru_cache
from importlib.util import find_spec
from ipaddress import ip_address
from typing import NoReturn

from boatlift.errors import InvalidError

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{1,5}))?")

_ONE_HOST = "a request has one Host, of a name or an address and a port: send that"

HTTP_PORT = 80

SHORTEST = 16
"""The least number of characters of a token."""

_URL = re.compile(r"https?://[\x21-\x7e]+")

_BEARER = re.compile(rb"bearer +([\x21-\x7e]+) *", re.IGNORECASE)
_SENDABLE = re.compile(r"[\x21-\x7e]+")


def address_of(listen: str) -> tuple[str, int]:
    """Parse `host:port`."""
    text: object = listen
    host, _, port = listen.rpartition(":") if isinstance(text, str) else ("", "", "")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise InvalidError("BAD_OPTION", f"listen is {listen!r}: give host:port, such as '127.0.0.1:8080'")
    needed = ("httptools", "prometheus_client", "starlette", "uvicorn")
    missing = [package for package in needed if find_spec(package) is None]
    if missing:
        raise InvalidError("MISSING_EXTRA", f"HTTP needs {' and '.join(missing)}: pip install 'boatlift[web]'")
    return host.removeprefix("[").removesuffix("]"), int(port)


def url_of(address: tuple[str, int]) -> str:
    """Return the URL of an address, without a path."""
    host, port = address
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def advertised(advertise: str | None) -> str:
    """Return the URL, without a path of its own, that a user gives for a source; empty for none."""
    text: object = advertise
    if text is None:
        return ""
    if not isinstance(text, str) or not _URL.fullmatch(text):
        raise InvalidError(
            "BAD_OPTION", f"advertise is {text!r}: give the URL of this process, such as 'http://10.0.0.7:8080'"
        )
    return text.rstrip("/")


class BearerToken:
    """A token. Only its digest is kept, so that nothing can show it, and it is never pickled.

    Args:
        text: Visible ASCII characters.
    """

    __slots__ = ("_digest",)

    def __init__(self, text: str) -> None:
        self._digest = hashlib.sha256(text.encode("ascii")).digest()

    def fits(self, authorization: bytes) -> bool:
        """Return whether an `Authorization` header has this token; the time taken reveals nothing about it."""
        found = _BEARER.fullmatch(authorization)
        text = found[1] if found else b""
        return hmac.compare_digest(hashlib.sha256(text).digest(), self._digest)

    def __repr__(self) -> str:
        return "BearerToken(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token is not pickled")


def token_of(given: str | None, variable: str) -> BearerToken | None:
    """Return the token given, or that of a variable of the environment; None if neither has one."""
    where, found = "token", given
    if given is None:
        where, found = variable, os.environ.get(variable)
    if found is None:
        return None
    text: object = found
    if not isinstance(text, str) or not text:
        raise InvalidError("BAD_OPTION", f"{where} is {'empty' if text == '' else 'no text'}: give a secret, or none")
    if not _SENDABLE.fullmatch(text):
        advice = "give visible ASCII without blanks"
        raise InvalidError("BAD_OPTION", f"{where} has characters that no header can carry: {advice}")
    if len(text) < SHORTEST:
        raise InvalidError(
            "BAD_OPTION",
            f"{where} has {len(text)} characters, and can be guessed: give {SHORTEST} or more, as "
            '`python -c "import secrets; print(secrets.token_urlsafe(32))"` prints them',
        )
    return BearerToken(text)


class Admission:
    """Refuses requests by their headers, before it reads any other part.

    A web page can make a browser send requests to any address that the browser reaches. Browsers say so in `Origin` and
    `Sec-Fetch-Site`. If the name of a page resolves to an address of this machine, the page has the same origin for its
    browser, but `Host` has its name.

    Args:
        address: Where the server listens: on a loopback address `Host` must be one, with the port.
        instead: What the client of a foreign page does instead, in words.
        with_token: How a client shows the token, in words.
    """

    def __init__(self, address: tuple[str, int], token: BearerToken | None, *, instead: str, with_token: str) -> None:
        self._port, self._loopback, self._token = address[1], is_loopback(address[0]), token
        self._instead, self._with_token = instead, with_token
        self._trusts = lru_cache(maxsize=64)(self._checked_host)  # most requests of a server have one Host

    def check(self, headers: list[tuple[bytes, bytes]], *, needs_host: bool = True, needs_token: bool = True) -> None:
        """Refuse a request that is not admitted.

        Args:
            headers: Names in lower case, and values.
            needs_host: Whether a request without `Host` is refused: all but those of HTTP/1.0.
            needs_token: Whether a request without the token is refused.
        """
        kept: dict[bytes, list[bytes]] = {b"host": [], b"origin": [], b"sec-fetch-site": [], b"authorization": []}
        for name, value in headers:
            if name in kept:
                kept[name].append(value)
        hosts, origins, sites, tokens = kept.values()
        if len(hosts) > 1 or (needs_host and not hosts):
            raise InvalidError("BAD_REQUEST", _ONE_HOST)
        # Whether `Host` proves the server's name: then a page of the same origin is the server's own.
        trusted = bool(hosts) and self._trusts(hosts[0])
        if origins or sites:
            self._check_site(hosts, origins, sites, trusted)
        if needs_token and self._token is not None and (len(tokens) != 1 or not self._token.fits(tokens[0])):
            what = "no token" if not tokens else "another token" if len(tokens) == 1 else "several tokens"
            raise InvalidError("BAD_TOKEN", f"the request has {what}: {self._with_token}")

    def _checked_host(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1").lower())
        if found is None:
            raise InvalidError("BAD_REQUEST", _ONE_HOST)
        name, port = found[1] or found[2], int(found[3] or HTTP_PORT)
        if not self._loopback:
            return _is_address(name) or self._token is not None
        if port != self._port or not (name == "localhost" or is_loopback(name)):
            raise InvalidError(
                "CROSS_SITE",
                f"the request is for {_shown(host)}, and this is localhost:{self._port}: use that as Host, also in a "
                "proxy",
            )
        return True

    def _check_site(self, hosts: list[bytes], origins: list[bytes], sites: list[bytes], trusted: bool) -> None:
        host = hosts[0].lower() if hosts else b""
        own = (b"http://" + host, b"https://" + host) if trusted else ()
        for origin in origins:
            if origin.lower() not in own:
                raise InvalidError(
                    "CROSS_SITE",
                    f"the request comes from a web page, of {_shown(origin)}: {self._instead}, without Origin",
                )
        for site in sites:
            if site.lower() not in (b"none", b"same-origin" if trusted else b"none"):
                raise InvalidError(
                    "CROSS_SITE",
                    f"the request comes from a web page, as Sec-Fetch-Site {_shown(site)} says: {self._instead}, "
                    "without it",
                )


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached only from its own machine; False for a name."""
    try:
        found = ip_address(host)
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return (mapped or found).is_loopback


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _shown(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
