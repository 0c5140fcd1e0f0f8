"""What a host tells those who watch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that was done, for people and programs that watch.

    Attributes:
        what: `step`, `commit`, `checkpoint`, `restore`, `failure`, `idle`, `listening` or `stopping`.
        processor: Whose; the dataflow's name when it is stopping.
        time: At which logical time.
        numInputRows, numOutputRows: Rows in and out of a step.
        durationMs: How long it took, in milliseconds.
        replay: Whether it repeats what was done before a crash.
        behind: How many closed times the processor has still to run.
        where: The URL that a source listens on.
    """

    what: str
    processor: str
    time: int
    numInputRows: int = 0  # noqa: N815 - Spark's own name
    numOutputRows: int = 0  # noqa: N815
    durationMs: float = 0.0  # noqa: N815
    replay: bool = False
    behind: int = 0
    where: str = ""
