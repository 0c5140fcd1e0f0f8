"""What a run is at, told on standard error whenever that changes: compiling, taking over, replaying, waiting for input."""

from __future__ import annotations

from boatlift.console.telling import tell
from boatlift.dataflow import Dataflow
from boatlift.dataflow.processors import SourceProcessor
from boatlift.runtime.progress import Progress

__all__ = ["Stages"]


class Stages:
    """Follows a run from stage to stage.

    Args:
        flow: The dataflow.
        quiet: Tell nothing.
        available_now: Whether the run ends with the input.
    """

    def __init__(self, flow: Dataflow, *, quiet: bool, available_now: bool) -> None:
        self._quiet, self._available_now = quiet, available_now
        self._sources = {name for name, each in flow.processors.items() if isinstance(each, SourceProcessor)}
        self._idle: set[str] = set()
        self._waits = False
        self._replays: dict[str, int] = {}

    def show(self, progress: Progress) -> None:
        """Take in what was done, and tell the stage if it is another now."""
        match progress.what:
            case "compile":
                tell(f"compiling {progress.processor}", quiet=self._quiet)
            case "recover":
                tell("taking over the store and the sinks", quiet=self._quiet)
            case "replay":
                self._replays[progress.processor] = progress.time
                steps = "1 step" if progress.behind == 1 else f"{progress.behind} steps"
                tell(f"{progress.processor} replays {steps}, up to step {progress.time}", quiet=self._quiet)
            case "step":
                self._idle -= set() if self._available_now else self._sources  # with the input a source has ended
                self._waits = False
            case "idle":
                self._idle.add(progress.processor)
                self._rest(progress.behind)

    def to_replay(self, processor: str) -> str:
        """Return how far a processor replays, to stand behind the number of a step; "" if that is not known."""
        last = self._replays.get(processor)
        return "" if last is None else f" of {last}"

    def _rest(self, behind: int) -> None:
        if self._waits or self._idle != self._sources:
            return
        if self._available_now:
            tell(f"the input is exhausted{f', {behind} more steps to go' if behind else ''}", quiet=self._quiet)
        elif not behind:
            tell("waiting for input", quiet=self._quiet)
        self._waits = not behind
