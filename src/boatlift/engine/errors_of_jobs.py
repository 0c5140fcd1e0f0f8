"""From what Spark says of a failed job to one of our errors.

An exception raised in a task reaches the driver as text only; ours carry their condition in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from boatlift.dataflow import Json, Source
from boatlift.errors import BoatliftError, UnavailableError, UserCodeError, from_text

__all__ = ["explain"]

_SQLSTATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
_FAULTS_OF_EXPRESSIONS = frozenset({"22", "42"})
"""Classes of SQLSTATE that come again however often a step is tried: bad values, and what does not resolve."""


def explain(
    error: Exception, unit: str, time: int, inputs: Sequence[tuple[Source, Json]] = (), functions: Sequence[str] = ()
) -> BoatliftError:
    """Finds out what a failed job means for the user.

    Args:
        error: What Spark raised.
        unit, time: Which step.
        inputs: The sources and positions that it read, if it read from outside.
        functions: The transforms whose Python functions it called.
    """
    text = str(error)
    ours = from_text(text)
    if ours is not None:
        return ours
    for source, position in inputs:
        explained = source.explain_failure(position, text)
        if isinstance(explained, BoatliftError):
            return explained
    if "Traceback (most recent call last)" in text:
        whose = " or ".join(dict.fromkeys(functions or [unit]))
        return UserCodeError("USER_CODE", f"a function of {whose} raised at step {time} of {unit}: {_traceback(text)}")
    state = _SQLSTATE.search(text)
    first = next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    if state is not None and state[1] in _FAULTS_OF_EXPRESSIONS:
        return UserCodeError("USER_CODE", f"an expression of {unit} failed at step {time}: {first}")
    return UnavailableError("STEP_FAILED", f"Spark could not run step {time} of {unit}: {first}")


def _traceback(text: str) -> str:
    """The user's part of a Python worker's traceback: Spark's own frames are cut."""
    lines = text[text.index("Traceback (most recent call last)") :].splitlines()
    kept = [lines[0]]
    ours = False
    for line in lines[1:]:
        if line.startswith("  File "):
            ours = "/pyspark/" in line
        elif line and not line.startswith(" "):
            kept.append(line)
            break
        if not ours:
            kept.append(line)
    return "\n".join(kept)
