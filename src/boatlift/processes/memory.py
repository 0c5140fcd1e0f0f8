"""The memory of Spark's processes on this computer, as the system sees it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from boatlift.processes.jvm import pid_of_jvm

PAUSE = 500
"""From one look at all processes to the next it is at least so many times as long as the look took."""

_PARENT, _PAGES = 1, 21  # fields of `/proc/PID/stat`, counted behind the command's name


class SparkMemory:
    """Finds the resident bytes of the JVM that this process has started, and of the Python workers below it.

    Laws:
        * Pages that workers share with the process that forked them count in each.
        * A JVM that another process has started, workers on other computers, and a system without `/proc` are left out.
        * All processes are looked at seldom: a value may be some seconds old, of very many processes some minutes.

    Args:
        jvm: Returns the process of the JVM; None: there is none.
        clock: Seconds that only grow.
    """

    def __init__(self, jvm: Callable[[], int | None] = pid_of_jvm, clock: Callable[[], float] = time.monotonic) -> None:
        self._jvm, self._clock = jvm, clock
        self._due = clock()
        self._found: dict[str, int] = {}

    def resident_bytes(self) -> dict[str, int]:
        """Return the bytes of the `jvm` and of all `workers`; nothing if there is no JVM."""
        began = self._clock()
        if began >= self._due:
            pid = self._jvm()
            self._found = {} if pid is None else _found_below(pid)
            now = self._clock()
            self._due = now + PAUSE * (now - began)
        return self._found


def _found_below(jvm: int) -> dict[str, int]:
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    with suppress(OSError):
        for path in Path("/proc").iterdir():
            if path.name.isdecimal():
                with suppress(OSError, ValueError, IndexError):  # it has ended
                    fields = (path / "stat").read_bytes().rpartition(b")")[2].split()
                    parents[int(path.name)], pages[int(path.name)] = int(fields[_PARENT]), int(fields[_PAGES])
    if jvm not in pages:
        return {}
    size = os.sysconf("SC_PAGE_SIZE")
    workers = sum(number for pid, number in pages.items() if _is_below(pid, jvm, parents))
    return {"jvm": size * pages[jvm], "workers": size * workers}


def _is_below(pid: int, jvm: int, parents: dict[int, int]) -> bool:
    """Return whether a process was started by another, or by one below it."""
    for _ in parents:  # a number that was given anew meanwhile could lead round in a circle
        if (pid := parents.get(pid, 0)) in (0, jvm):
            break
    return pid == jvm
