"""The user's part of a traceback, on the driver and from a Python worker."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without frames of Boatlift, PySpark, py4j and Python's imports; None if none is left."""
    kept = []
    while trace is not None:
        if not _is_framework(trace.tb_frame.f_code.co_filename):
            kept.append(trace)
        trace = trace.tb_next
    own: TracebackType | None = None
    for frame in reversed(kept):
        own = TracebackType(own, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return own


def place(own: TracebackType | None) -> str:
    """Return the last line of a traceback, in brackets, as the end of a message."""
    if own is None:
        return ""
    while own.tb_next is not None:
        own = own.tb_next
    return f" (line {own.tb_lineno} of {own.tb_frame.f_code.co_filename})"


def _is_framework(filename: str) -> bool:
    return filename.startswith("<frozen ") or any(Path(filename).is_relative_to(folder) for folder in _folders())


def _folders() -> list[Path]:
    files = [sys.modules[name].__file__ for name in ("boatlift", "importlib", "pyspark", "py4j") if name in sys.modules]
    return [Path(file).parent for file in files if file]


_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"]+)", line (\d+)')
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")


@dataclass(frozen=True, slots=True)
class WorkerTraceback:
    """The traceback of a user's function in a task, which reaches the driver as text.

    Attributes:
        text: The traceback with its causes, without the frames of Spark.
        summary: The exception, in one line.
        place: The line that raised it, in brackets, as the end of a message; "" if it is unknown.
    """

    text: str
    summary: str
    place: str

    @classmethod
    def found_in(cls, text: str) -> Self | None:
        """Return the traceback inside a text of Spark; None if there is none."""
        begin = text.find(_BEGIN)
        if begin < 0:
            return None
        own: list[str] = []
        frames: list[tuple[str, str]] = []
        summary = ""
        in_spark, in_frames = False, False
        for line in text[begin:].splitlines():
            frame = _FRAME.match(line)
            if line.strip() == _BEGIN:
                in_frames, in_spark, frames = True, False, []
                own.append(_BEGIN)
            elif frame is not None:
                in_spark = "/pyspark/" in frame[1]
                if not in_spark:
                    frames.append((frame[1], frame[2]))
                    own.append(line)
            elif in_frames and line.startswith(" "):
                if not in_spark:
                    own.append(line)
            elif in_frames and line:
                summary, in_frames = line.split(" SQLSTATE: ")[0].strip(), False
                own.append(line)
            elif line.startswith(_LINKS):
                own += ["", line, ""]
        return cls("\n".join(own), summary or "an exception", _place(frames))


def _place(frames: list[tuple[str, str]]) -> str:
    """Return the last frame outside of libraries, or else the last one."""
    own = [frame for frame in frames if "/site-packages/" not in frame[0] and "/lib/python" not in frame[0]]
    for file, line in (own or frames)[-1:]:
        return f" (line {line} of {file})"
    return ""
