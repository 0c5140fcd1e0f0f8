"""The token that a push over HTTP must have, if a source has one."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
from typing import NoReturn

from boatlift.errors import InvalidError

TOKEN_VARIABLE = "BOATLIFT_PUSH_TOKEN"  # noqa: S105 - its name, not a token

SHORTEST = 16
"""So many characters a token has at least."""

_BEARER = re.compile(rb"bearer +([\x21-\x7e]+) *", re.IGNORECASE)
_SENDABLE = re.compile(r"[\x21-\x7e]+")


class PushToken:
    """A token of which only the digest is kept, so that nothing can show it; it is neither copied nor pickled.

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
        return "PushToken(…)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a token is not pickled")


def token_of(given: str | None) -> PushToken | None:
    """Return the token given, or that of the environment; None if neither has one.

    Raises:
        InvalidError: `[BAD_OPTION]` the token is short, or no header can carry it. The error does not show the token.
    """
    where, found = "token", given
    if given is None:
        where, found = TOKEN_VARIABLE, os.environ.get(TOKEN_VARIABLE)
    if found is None:
        return None
    text: object = found
    if not isinstance(text, str) or not text:
        raise InvalidError("BAD_OPTION", f"{where} is {'empty' if text == '' else 'no text'}: give a secret, or none")
    if not _SENDABLE.fullmatch(text):
        raise InvalidError(
            "BAD_OPTION", f"{where} has characters that no header can carry: give visible ASCII without blanks"
        )
    if len(text) < SHORTEST:
        raise InvalidError(
            "BAD_OPTION",
            f"{where} has {len(text)} characters, and can be guessed: give {SHORTEST} or more, as "
            '`python -c "import secrets; print(secrets.token_urlsafe(32))"` prints them',
        )
    return PushToken(text)
