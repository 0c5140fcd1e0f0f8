"""What the runtime needs of an engine: the contract between the state machine's shell and Spark.

An engine executes; it decides nothing. Every method may be called from a worker thread; methods about one unit or one
sink are never called concurrently, except `capture`, which is called between two runs of its unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from boatlift.dataflow import Committed, Json, Outcome, Plan
from boatlift.runtime.events import StepResult
from boatlift.runtime.instructions import Commit, Run
from boatlift.storage.records import Checkpoint, RunRef
from boatlift.storage.store import Store

__all__ = ["Engine"]


class Engine(Protocol):
    """Executes the steps of one dataflow."""

    plan: Plan

    def program(self) -> dict[str, Any]:
        """Tells the program's identity: a store written by another one is refused."""

    def environment(self) -> dict[str, Any]:
        """Tells versions and settings that results depend on: a replay under others is refused."""

    def start(self, store: Store, scratch: Path, store_id: str, token: int) -> None:
        """Learns where state is, where files that need not survive go, and as whom it writes to sinks."""

    def open_sink(self, sink: str) -> Committed | None:
        """Takes a sink over, fencing older owners, and tells what it holds."""

    def restore(self, checkpoint: Checkpoint) -> None:
        """Makes a unit's state what a checkpoint names."""

    def first_cursor(self, source: str) -> Json:
        """Gives a source's cursor before it took anything."""

    def poll(self, source: str, cursor: Json) -> Json | None:
        """Closes a step at a source: its position, or None if there is nothing new."""

    def advance(self, source: str, cursor: Json, position: Json) -> Json:
        """Gives the cursor after a position; pure."""

    def together(self, unit: str, positions: Sequence[Json]) -> int:
        """Tells how many of these steps, from the first on, are better run as one job: 1 or more; at once."""

    def prepare(self, order: Run) -> None:
        """Learns of steps before their turn comes, if their rows come from a source; may get ready; returns at once."""

    def run(self, order: Run) -> tuple[StepResult, ...]:
        """Executes steps, in order, each over the state that the one before left.

        Returns:
            A result for each step; if one fails, for those before it, and the error when it is ordered again.

        Raises:
            DataError: the input is not what its position names.
            UserCodeError: a function of the program raised.
            UnavailableError: `[STEP_FAILED]` Spark could not run it.
        """

    def capture(self, unit: str) -> tuple[tuple[RunRef, Path | None], ...]:
        """Names the runs that make up a unit's state now, under their durable names; with a local file if not durable."""

    def saved(self, unit: str, runs: tuple[RunRef, ...]) -> None:
        """Learns that these runs are durable."""

    def commit(self, order: Commit) -> Outcome:
        """Hands a step to its sink."""

    def acknowledge(self, source: str, position: Json) -> None:
        """Tells a source that a position will never be read again."""

    def free(self, unit: str, time: int) -> None:
        """Drops a step's files in scratch."""

    def hasten(self) -> None:
        """Learns that a clean stop was asked for: a run of several steps may end after the one under way."""

    def cancel(self) -> None:
        """Makes running jobs end soon, with an error, and lets none begin."""

    def close(self) -> None:
        """Lets go of sinks and files."""
