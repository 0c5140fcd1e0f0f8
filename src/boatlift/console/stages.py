"""The stages of a run, printed on standard error: compiling, taking over, restoring, replaying, waiting, stopping."""

from __future__ import annotations

from boatlift.api.dataflow import Dataflow
from boatlift.console.notices import notice
from boatlift.dataflow.processors import SourceSpec
from boatlift.runtime.host.progress import Progress

__all__ = ["Stages"]


class Stages:
    """A run, followed from stage to stage.

    Args:
        flow: The dataflow.
        quiet: Print nothing but a takeover and the steps that wait for the next run.
        available_now: Whether the run ends with the input.
    """

    def __init__(self, flow: Dataflow, *, quiet: bool, available_now: bool) -> None:
        self._quiet, self._available_now = quiet, available_now
        self._sources = {
            name for name, each in flow.processors.items() if isinstance(each, SourceSpec) and name not in flow.unused
        }
        self._idle: set[str] = set()
        self._waits = False
        self._replays: dict[str, Progress] = {}

    def show(self, progress: Progress) -> None:
        """Note what was done, and print the stage if it is another one now."""
        match progress.what:
            case "compile":
                notice(f"compiling {progress.processor}", quiet=self._quiet)
            case "recover":
                notice("opening the store and the sinks", quiet=self._quiet)
            case "takeover":
                notice(f"{progress.processor}: {progress.said}")
            case "listening":
                notice(f"{progress.processor}: listening on {progress.where}", quiet=self._quiet)
            case "restore":
                notice(f"restoring {progress.processor} from its checkpoint at step {progress.time}", quiet=self._quiet)
            case "replay":
                self._replays[progress.processor] = progress
                notice(
                    f"{progress.processor} replays {_steps(progress.behind)}, up to step {progress.time}",
                    quiet=self._quiet,
                )
            case "step":
                if not self._available_now:  # else a source that has no more input stays idle
                    self._idle -= self._sources
                self._waits = False
            case "idle":
                self._idle.add(progress.processor)
                self._rest(progress.behind)
            case "stopping":
                notice(
                    f"{progress.processor}: finishing the steps under way; a second Ctrl-C stops at once",
                    quiet=self._quiet,
                )
            case "left":
                verb = "waits" if progress.behind == 1 else "wait"
                notice(
                    f"the run was stopped: {_steps(progress.behind)} {verb} at {progress.processor} for the next run"
                )

    def replaying(self, step: Progress) -> str:
        """Return how far a processor has come with its replay: "replaying 1 of 2".

        A step that is replayed later, not at the start of the run, is just "replaying".
        """
        begun = self._replays.get(step.processor)
        at = 0 if begun is None else begun.behind - (begun.time - step.time)
        return f"replaying {at} of {begun.behind}" if begun is not None and at > 0 else "replaying"

    def _rest(self, behind: int) -> None:
        if self._waits or self._idle != self._sources:
            return
        if self._available_now:
            left = f", {_steps(behind, more='more ')} to go" if behind else ""
            notice(f"the input is exhausted{left}", quiet=self._quiet)
        elif not behind:
            notice("waiting for input", quiet=self._quiet)
        self._waits = not behind


def _steps(number: int, *, more: str = "") -> str:
    return f"{number} {more}{'step' if number == 1 else 'steps'}"
