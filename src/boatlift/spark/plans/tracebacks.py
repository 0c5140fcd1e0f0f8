"""The user's part of a traceback: the frames between those of Boatlift and those of Spark."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType


def own_frames(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of Boatlift, PySpark, py4j and Python's imports; None if none is left."""
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
