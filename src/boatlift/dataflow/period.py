"""Durations as text, such as `"15 minutes"`."""

from __future__ import annotations

import re

from boatlift.errors import InvalidError

_MICROSECONDS = {"second": 10**6, "minute": 60 * 10**6, "hour": 3600 * 10**6, "day": 86400 * 10**6}
_MICROSECONDS["week"] = 7 * _MICROSECONDS["day"]
_PERIOD = re.compile(rf"(?P<count>[1-9]\d*) (?P<unit>{'|'.join(_MICROSECONDS)})s?")
_NONE = re.compile(rf"0 ({'|'.join(_MICROSECONDS)})s?")

HOW_TO_WRITE = f"write a number and a unit of {', '.join(_MICROSECONDS)}, as in '15 minutes'"


def microseconds_in(text: str) -> int:
    """Return a duration in microseconds; 0 if the text is none."""
    found = _PERIOD.fullmatch(text.strip().lower())
    return int(found["count"]) * _MICROSECONDS[found["unit"]] if found else 0


def seconds_in(text: object, option: str) -> float:
    """Return a duration in seconds.

    Raises:
        InvalidError: `[BAD_OPTION]` the text is no duration.
    """
    microseconds = microseconds_in(text) if isinstance(text, str) else 0
    if not microseconds:
        raise InvalidError("BAD_OPTION", f"{option}={text!r}: {HOW_TO_WRITE}")
    return microseconds / 10**6


def lateness_in(text: object, option: str) -> int:
    """Return a duration in milliseconds, which may be zero (`"0 seconds"`); see `seconds_in`."""
    if isinstance(text, str) and _NONE.fullmatch(text.strip().lower()):
        return 0
    return round(seconds_in(text, option) * 1000)
