"""The traceback of a Python worker, which reaches the driver as text: the part of it that is the user's."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self

__all__ = ["WorkerTraceback"]

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "([^"]+)", line (\d+)')
_LINKS = ("The above exception was the direct cause", "During handling of the above exception")


@dataclass(frozen=True, slots=True)
class WorkerTraceback:
    """What a function of the user raised in a task.

    Attributes:
        text: The traceback, exceptions before it included, without the frames of Spark.
        summary: The exception, in one line.
        place: Where it was raised, in brackets, to end a message with; "" if that is not known.
    """

    text: str
    summary: str
    place: str

    @classmethod
    def found_in(cls, text: str) -> Self | None:
        """Return the traceback that a text of Spark's has in it; None if it has none."""
        begin = text.find(_BEGIN)
        if begin < 0:
            return None
        kept: list[str] = []
        frames: list[tuple[str, str]] = []
        summary = ""
        sparks, in_frames = False, False
        for line in text[begin:].splitlines():
            frame = _FRAME.match(line)
            if line.strip() == _BEGIN:
                in_frames, sparks, frames = True, False, []
                kept.append(_BEGIN)
            elif frame is not None:
                sparks = "/pyspark/" in frame[1]
                if not sparks:
                    frames.append((frame[1], frame[2]))
                    kept.append(line)
            elif in_frames and line.startswith(" "):
                if not sparks:
                    kept.append(line)
            elif in_frames and line:
                summary, in_frames = line.split(" SQLSTATE: ")[0].strip(), False
                kept.append(line)
            elif line.startswith(_LINKS):
                kept += ["", line, ""]
        return cls("\n".join(kept), summary or "an exception", _place(frames))


def _place(frames: list[tuple[str, str]]) -> str:
    """Return the last frame that is no library's, or else the last."""
    own = [frame for frame in frames if "/site-packages/" not in frame[0] and "/lib/python" not in frame[0]]
    for file, line in (own or frames)[-1:]:
        return f" (line {line} of {file})"
    return ""
