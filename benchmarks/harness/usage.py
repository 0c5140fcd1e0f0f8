"""The processor time and the memory of a process with all that it has started."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

__all__ = ["cores_used", "resident_bytes"]

_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of `/proc/PID/stat` behind the command's name


def cores_used(process: int, seconds: float) -> float:
    """Wait for so many seconds, and return how many cores a process used in them on average."""
    before, began = _ticks(process), time.monotonic()
    time.sleep(seconds)
    after, ended = _ticks(process), time.monotonic()
    ticks = sum(count - before.get(pid, 0) for pid, count in after.items())
    return ticks / os.sysconf("SC_CLK_TCK") / (ended - began)


def resident_bytes(process: int) -> int:
    """Return the resident memory; pages that processes share are counted once, by their shares."""
    shares = 0
    for pid in _ticks(process):
        with suppress(OSError):  # it has ended, and its parent has not asked for that yet
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):
                    shares += int(line.split()[1]) << 10
    return shares


def _ticks(process: int) -> dict[int, int]:
    """Return the processor time of a process and of its descendants that live, by number."""
    parents, used = dict[int, int](), dict[int, int]()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has just ended
                continue
            pid = int(entry.name)
            parents[pid], used[pid] = int(fields[_PARENT]), int(fields[_USER]) + int(fields[_SYSTEM])
    family, found = {process}, 0
    while len(family) > found:
        found = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return {pid: used[pid] for pid in family if pid in used}
