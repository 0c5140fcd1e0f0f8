"""What Spark's JVM writes on standard error: passed on line by line, without what says nothing, and its end remembered.

The Python workers write there too, by way of the JVM: what functions of the user print is passed on as it comes.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import suppress
from typing import IO

__all__ = ["JvmOutput"]

LINES_KEPT = 200
"""So many lines are remembered: more than a stack trace has."""

_NOISE = frozenset({"WARNING: Using incubator modules: jdk.incubator.vector"})
"""Spark switches this module on, and the JVM has no option against the warning."""

_TELLING = ("OutOfMemoryError", "insufficient memory", "Could not reserve", "Exception in thread")
"""A line with one of these tells more than others do; the first of them that is found tells most."""

_ABOUT_NOTHING = ("WARNING: ", "Picked up ", "Using Spark's ", "Error occurred during initialization of VM")
"""How lines begin that a JVM writes before it says what is wrong."""


class JvmOutput:
    """Reads the lines of a JVM until it ends; holds them back until they are to be passed on.

    Args:
        stream: The reading end of the JVM's standard error.
    """

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._lock = threading.Lock()
        self._passes_on = False
        self._thread = threading.Thread(target=self._read, name="jvm-output", daemon=True)
        self._thread.start()

    def pass_on(self) -> None:
        """Write all lines to this process's standard error: those that were held back, and those to come."""
        with self._lock:
            self._passes_on = True
            for line in self._lines:
                _write(line)

    def last_words(self, wait_seconds: float) -> str:
        """Return the line that says most of why the JVM ended, "" if none does.

        Args:
            wait_seconds: So long the last lines of a JVM that has ended are waited for.
        """
        said = self._said(wait_seconds)
        return next((line for sign in _TELLING for line in reversed(said) if sign in line), "")

    def first_words(self, wait_seconds: float) -> str:
        """Return the line that says most of why the JVM never began, "" if it said nothing; arguments as for `last_words`."""
        said = self._said(wait_seconds)
        begun = (line for line in said if not line.startswith(_ABOUT_NOTHING))
        return self.last_words(0) or next(begun, "")

    def _said(self, wait_seconds: float) -> list[str]:
        self._thread.join(wait_seconds)
        with self._lock:
            return [line.strip() for line in self._lines if line.strip()]

    def _read(self) -> None:
        with self._stream:
            for raw in self._stream:
                line = raw.decode(errors="replace")
                if line.strip() in _NOISE:
                    continue
                with self._lock:
                    self._lines.append(line)
                    if self._passes_on:
                        _write(line)


def _write(line: str) -> None:
    with suppress(ValueError, OSError):  # standard error is closed: the JVM must not wait for a reader
        sys.stderr.write(line)
        sys.stderr.flush()
