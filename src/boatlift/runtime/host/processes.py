"""The process that has claimed a dataflow: whether it is alive. For people: no decision rests on it."""

from __future__ import annotations

import os
import socket
from enum import Enum
from pathlib import Path

from boatlift.storage.records.records import Claim

__all__ = ["Life", "life_of", "this_process"]

_START = 19
"""Where the time at which a process began stands in `/proc/PID/stat`, counted from what follows the command's name."""


class Life(Enum):
    """What this machine can tell of a process."""

    RUNNING = "running"
    ENDED = "ended"
    UNKNOWN = "unknown"


def this_process() -> str:
    """Return a text that tells this process from all others with its number; empty where the system has none."""
    began = _began(os.getpid())
    where = _where()
    return f"{where}/{began}" if began and where else ""


def life_of(claim: Claim) -> Life:
    """Return whether the process of a claim lives, as far as this process can find out.

    The answer is unknown for a process on another host, in another container, or from before this machine was started,
    and for one without a recorded beginning: its number may be another process's by now.
    """
    where, _, began = claim.process.rpartition("/")
    if not where or claim.host != socket.gethostname() or where != _where():
        return Life.UNKNOWN
    return Life.RUNNING if _began(claim.pid) == began else Life.ENDED


def _where() -> str:
    """Return this start of this machine, and the space of process numbers within it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:  # no Linux: unknown
        return ""


def _began(pid: int) -> str:
    """Return when a process began, in ticks of the machine; empty if no such process is alive."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if state in "ZX" else fields[_START - 1]
