"""The progress of `boatlift run`: a live table on a terminal, plain lines elsewhere, and the stages of the run."""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.live import Live as RichLive
from rich.table import Table

from boatlift.api.dataflow import Dataflow
from boatlift.console.messages import notice
from boatlift.dataflow.processors import SourceSpec
from boatlift.runtime.host.progress import Progress
from boatlift.runtime.host.term import MESSAGES_AHEAD


class Stages:
    """The stages of a run, printed on standard error: compiling, restoring, replaying, waiting, stopping.

    Args:
        quiet: Print only a takeover, what is stuck, and the steps that wait for the next run.
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
        match progress.what:
            case "compile":
                notice(f"compiling {progress.processor}", quiet=self._quiet)
            case "recover":
                notice("opening the store and the sinks", quiet=self._quiet)
            case "standby":
                notice(f"{progress.processor}: this standby {progress.said}", quiet=self._quiet)
            case "takeover" | "suspect" | "carried" | "members" | "lost":
                notice(f"{progress.processor}: {progress.said}")
            case "kept":
                notice(f"{progress.processor}: {progress.said}", quiet=self._quiet)
            case "evolve" | "corrected":
                notice(f"{progress.processor} {progress.said}", quiet=self._quiet)
            case "listening":
                notice(f"{progress.processor}: listening on {progress.where}", quiet=self._quiet)
            case "adopt":
                notice(f"{progress.processor} goes on after step {progress.time}", quiet=self._quiet)
            case "restore":
                notice(f"restoring {progress.processor} from its checkpoint at step {progress.time}", quiet=self._quiet)
            case "replay":
                self._replays[progress.processor] = progress
                replays = f"replays {_steps(progress.behind)}, up to step {progress.time}"
                notice(f"{progress.processor} {replays}", quiet=self._quiet)
            case "step":
                if not self._available_now:  # else a source that has no more input stays idle
                    self._idle -= self._sources
                self._waits = False
            case "idle":
                self._idle.add(progress.processor)
                self._wait(progress.behind)
            case "stopping":
                finishing = "finishing the steps under way; a second Ctrl-C stops at once"
                notice(f"{progress.processor}: {finishing}", quiet=self._quiet)
            case "stuck":
                stuck = f"no progress at step {progress.time} for {progress.durationMs / 1000:.0f} s"
                notice(f"{progress.processor}: {stuck}: {progress.said}")
            case "left":
                wait = f"{_steps(progress.behind)} {'waits' if progress.behind == 1 else 'wait'}"
                notice(f"the run was stopped: {wait} at {progress.processor} for the next run")

    def replaying(self, step: Progress) -> str:
        """Return the progress of a processor's replay, as "replaying 1 of 2"; after the start just "replaying"."""
        begun = self._replays.get(step.processor)
        at = 0 if begun is None else begun.behind - (begun.time - step.time)
        return f"replaying {at} of {begun.behind}" if begun is not None and at > 0 else "replaying"

    def _wait(self, behind: int) -> None:
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


LINE_SECONDS = 1.0
"""Off a terminal, a line about a processor's steps is printed at most this often."""


class Live:
    """The progress of a run on standard output (a context manager)."""

    def __init__(self, flow: Dataflow, *, quiet: bool, available_now: bool = False) -> None:
        self._flow = flow
        self._stages = Stages(flow, quiet=quiet, available_now=available_now)
        self._quiet = quiet
        self._console = Console(stderr=False)
        self._table = self._console.is_terminal and not quiet
        self._rows: dict[str, Progress] = {}
        self._checkpoints: dict[str, int] = {}  # those of this run
        self._printed: dict[str, float] = {}
        self._began = time.monotonic()
        self._taken: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()
        self._steps = 0
        self._replayed = 0
        self._live: RichLive | None = None

    def __enter__(self) -> Self:
        if self._table:
            self._live = RichLive(self._draw(), console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def show(self, progress: Progress) -> None:
        self._stages.show(progress)
        match progress.what:
            case "checkpoint":
                self._checkpoints[progress.processor] = progress.time
            case "commit":
                self._rows[progress.processor] = progress
                self._delivered[progress.processor] += progress.numOutputRows
            case "take":
                self._steps += 1
            case "step":
                self._rows[progress.processor] = progress
                self._taken[progress.newInputOf] += progress.newInputRows
                self._replayed += progress.replay
        if self._live is not None:
            self._live.update(self._draw())
        elif not self._quiet:
            self._print(progress)

    def _print(self, progress: Progress) -> None:
        if progress.what != "step":
            return
        now = time.monotonic()
        if now - self._printed.get(progress.processor, 0.0) >= LINE_SECONDS or progress.behind == 0:
            self._printed[progress.processor] = now
            mode = f"{self._stages.replaying(progress)}, step" if progress.replay else "step"
            last = self._checkpoints.get(progress.processor)
            checkpoint = "" if last is None else f", last checkpoint {last}"
            read = f"{progress.numInputRows} rows read in {progress.durationMs:.0f} ms"
            print(f"{progress.processor}: {mode} {progress.time}, {read}{checkpoint}", flush=True)

    def _draw(self) -> Table:
        table = Table(
            title=f"{self._flow.name}: {self._taken.total():,} rows in {time.monotonic() - self._began:.0f} s"
        )
        checkpoint = ["last checkpoint"] if self._checkpoints else []
        for heading in ("processor", "step", "rows read/s", "ms", "steps behind", *checkpoint, "mode"):
            table.add_column(heading)
        for name, progress in self._rows.items():
            seconds = progress.durationMs / 1000
            step = progress.what == "step"
            table.add_row(
                name,
                str(progress.time),
                f"{progress.numInputRows / seconds:,.0f}" if step and seconds else "",
                f"{progress.durationMs:.0f}" if step else "",
                _behind(progress) if step else "",
                *(str(self._checkpoints.get(name, "")) for _ in checkpoint),
                (self._stages.replaying(progress) if progress.replay else "live") if step else "",
            )
        return table

    def __exit__(self, kind: object, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        if kind is None:
            steps = f"stopped cleanly after {self._steps:,} new {'step' if self._steps == 1 else 'steps'}"
            order = {name: place for place, name in enumerate(self._flow.processors)}
            named = sorted(self._delivered.items(), key=lambda each: order.get(each[0], 0))
            taken = [f"{rows:,} rows of {name}" for name, rows in self._taken.items() if rows]
            delivered = [f"{rows:,} to {name}" for name, rows in named if rows]
            counts = "; ".join(filter(None, (", ".join(taken), ", ".join(delivered))))
            replayed = f"; replayed {self._replayed:,} steps of processors" if self._replayed else ""
            print(f"{self._flow.name}: {steps}{': ' if counts else ''}{counts}{replayed}", flush=True)
        sys.stdout.flush()


def _behind(progress: Progress) -> str:
    """Return how many steps wait, and the size of their rows; more than `MESSAGES_AHEAD` may wait at the source."""
    more = "+" if progress.behind >= MESSAGES_AHEAD else ""
    size = f", {decimal(progress.bytesBehind)}" if progress.bytesBehind else ""
    return f"{progress.behind}{more}{size}"
