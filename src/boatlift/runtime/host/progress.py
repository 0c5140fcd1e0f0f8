"""What a host tells those who watch."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """One thing that was done, for people and programs that watch.

    Attributes:
        what: `compile`, `recover`, `takeover`, `restore`, `replay`, `step`, `commit`, `checkpoint`, `failure`, `idle`, `listening`, `stopping`,
            or `take`: a source has closed a time.
        processor: Whose; the dataflow's name when it is compiled, recovers, is stopping, or was taken over.
        time: At which logical time; of a `replay` the last that is executed again.
        numInputRows, numOutputRows: Rows in and out of a step.
        durationMs: How long it took, in milliseconds.
        replay: Whether it repeats what was done before a crash.
        behind: How many closed times the processor has still to run; of `idle`, how many steps some processor can execute without more input; of `replay`, how
            many steps are executed again.
        newInputRows: Of its input rows, those that sources gave for the first time; each source counts at one of its readers.
        said: Of a takeover: from which process, in words.
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
    newInputRows: int = 0  # noqa: N815
    said: str = ""
    where: str = ""
