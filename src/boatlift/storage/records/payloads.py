"""What facts name: states and messages, as they stand in the log. Each is a list of runs, and what else belongs to it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from boatlift.storage.records.records import RunRef

__all__ = ["NOTHING", "contents_with", "names_of_runs", "runs_of"]


def contents_with(runs: Iterable[RunRef], **more: Any) -> dict[str, Any]:
    """Makes the content that names these runs.

    Args:
        runs: The runs.
        more: What else belongs to it; JSON.
    """
    return {"runs": [msgspec.to_builtins(run) for run in runs], **more}


def runs_of(content: Any) -> Iterator[RunRef]:
    """Gives the runs that a content names; none of what has none, such as the position of a source."""
    if isinstance(content, dict):
        yield from (msgspec.convert(run, RunRef) for run in content.get("runs", ()))


def names_of_runs(contents: Iterable[Any]) -> set[str]:
    """Return the names of all runs that some contents name."""
    return {run.name for content in contents for run in runs_of(content)}


NOTHING: Mapping[str, Any] = contents_with((), rows=0, digest=f"{0:016x}")
"""What a sink is handed for a time at which nothing came: its steps are numbered without a gap."""
