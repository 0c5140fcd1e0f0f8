"""The standard error of Spark's JVM: passed on line by line without noise, and its last lines remembered.

Python workers write to it too, through the JVM: the output of the user's functions is passed on as it comes.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from contextlib import suppress
from typing import IO

LINES_KEPT = 200
"""The number of lines that are remembered: more than a stack trace has."""

_NOISE = frozenset({"WARNING: Using incubator modules: jdk.incubator.vector"})
"""Spark switches this module on, and the JVM has no option against the warning."""

_CAUSES = ("OutOfMemoryError", "insufficient memory", "Could not reserve", "Exception in thread")
"""Signs of a line that has the cause; the first sign that is found wins."""

_PREAMBLE = ("WARNING: ", "Picked up ", "Using Spark's ", "Error occurred during initialization of VM")
"""How the lines begin that a JVM writes before the one that has the cause."""


class JvmOutput:
    """A reader of a JVM's lines; they are held back until `pass_on` is called.

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
        """Write all lines to this process's standard error: those held back, and those to come."""
        with self._lock:
            self._passes_on = True
            for line in self._lines:
                _write(line)

    def last_words(self, wait_seconds: float) -> str:
        """Return the line that has the cause of the JVM's end; "" if none has.

        Args:
            wait_seconds: How long to wait for the last lines of a JVM that has ended.
        """
        lines = self._stripped(wait_seconds)
        return next((line for sign in _CAUSES for line in reversed(lines) if sign in line), "")

    def first_words(self, wait_seconds: float) -> str:
        """Return the line that has the cause why the JVM did not begin; "" if it wrote nothing."""
        lines = self._stripped(wait_seconds)
        begun = (line for line in lines if not line.startswith(_PREAMBLE))
        return self.last_words(0) or next(begun, "")

    def _stripped(self, wait_seconds: float) -> list[str]:
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
    with suppress(ValueError, OSError):  # standard error is closed; the JVM must not wait for a reader
        sys.stderr.write(line)
        sys.stderr.flush()
