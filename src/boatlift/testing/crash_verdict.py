"""What a crash test has found: trials, and the verdict over all of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from boatlift.testing.crash import CrashPoint
from boatlift.testing.held import SinkDifference

__all__ = ["CrashTrial", "CrashVerdict"]


@dataclass(frozen=True, slots=True)
class CrashTrial:
    """A run that was killed at a crash point and started again.

    Attributes:
        point: The crash point; None: two runs without a crash were compared.
        killed: Whether the run came to the crash point; otherwise it came to its end before that.
        sinks: Each sink beside that of the undisturbed run; empty if the second process did not come to an end.
        failure: The error that ended it, in words; empty if it came to its end.
        seconds: How long both processes took.
        command: The command that repeats the trial.
    """

    point: CrashPoint | None
    killed: bool
    sinks: tuple[SinkDifference, ...]
    failure: str
    seconds: float
    command: str = ""

    @property
    def right(self) -> bool:
        return not self.failure and all(each.right for each in self.sinks)

    @property
    def first(self) -> str:
        """What went wrong first, in words; empty if nothing did."""
        wrong = (f"sink {each.sink} {each.first}" for each in self.sinks if not each.right)
        return self.failure or next(wrong, "")


@dataclass(frozen=True, slots=True)
class CrashVerdict:
    """What a crash test has found.

    Attributes:
        flow: The dataflow, as `module:attribute`.
        seed: The seed of the sample.
        passed: How many crash points an undisturbed run passes.
        trials: All trials, in order; the first one compares two runs without a crash.
    """

    flow: str
    seed: int
    passed: int
    trials: tuple[CrashTrial, ...] = field(repr=False)

    @property
    def right(self) -> bool:
        return all(trial.right for trial in self.trials)

    @property
    def wrong(self) -> tuple[CrashTrial, ...]:
        return tuple(trial for trial in self.trials if not trial.right)

    @property
    def text(self) -> str:
        """The verdict in words: of a wrong one, each trial with its first row and the command that repeats it."""
        crashes = sum(trial.killed for trial in self.trials)
        counted = f"{crashes} {'crash' if crashes == 1 else 'crashes'}, seed {self.seed}"
        if self.right and not crashes:
            return f"right: {self.flow} holds the same in two runs, and no run came to a crash point; {counted}"
        if self.right:
            return f"right: {self.flow} holds the same after {counted}"
        lines = [f"wrong: {self.flow}, {len(self.wrong)} of {len(self.trials)} trials; {counted}"]
        for trial in self.wrong:
            if trial.point is None:
                lines.append(f"two runs without a crash differ: {trial.first}")
                lines.append("  something besides the input decides: a clock, random numbers, or a state outside")
            else:
                lines.append(f"killed at {trial.point}: {trial.first}")
            lines.append(f"  again: {trial.command}")
        return "\n".join(lines)

    def assert_right(self) -> None:
        """Raise `AssertionError` with the verdict, if it is not right."""
        if not self.right:
            raise AssertionError(self.text)
