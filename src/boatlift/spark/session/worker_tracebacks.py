"""The user's part of the traceback of a Python worker, which reaches the driver as text."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"]+)", line (\d+)')
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")


@dataclass(frozen=True, slots=True)
class WorkerTraceback:
    """An exception that a function of the user raised in a task.

    Attributes:
        text: The traceback, exceptions before it included, without the frames of Spark.
        summary: The exception, in one line.
        place: The line that raised it, in brackets, as the end of a message; "" if it is not known.
    """

    text: str
    summary: str
    place: str

    @classmethod
    def found_in(cls, text: str) -> Self | None:
        """Return the traceback within a text of Spark; None if there is none."""
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
    """Return the last frame that is not of a library, or else the last one."""
    own = [frame for frame in frames if "/site-packages/" not in frame[0] and "/lib/python" not in frame[0]]
    for file, line in (own or frames)[-1:]:
        return f" (line {line} of {file})"
    return ""
