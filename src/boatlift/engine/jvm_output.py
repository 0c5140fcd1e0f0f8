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

_TELLING = ("OutOfMemoryError", "insufficient memory", "Could not reserve", "Error: ", "Exception in thread")
"""A line with one of these tells more than the last one does; the first of them that is found tells most."""


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
        """Return the line that says most of why the JVM ended, "" if it said nothing.

        Args:
            wait_seconds: So long the last lines of a JVM that has ended are waited for.
        """
        self._thread.join(wait_seconds)
        with self._lock:
            said = [line.strip() for line in self._lines if line.strip()]
        for sign in _TELLING:
            if telling := [line for line in said if sign in line]:
                return telling[-1]
        return said[-1] if said else ""

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
