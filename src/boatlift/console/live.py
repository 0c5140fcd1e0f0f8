"""The progress of `boatlift run`: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections import Counter
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.filesize import decimal
from rich.live import Live as RichLive
from rich.table import Table

from boatlift.api.dataflow import Dataflow
from boatlift.console.stages import Stages
from boatlift.runtime.host.ownership_term import MESSAGES_AHEAD
from boatlift.runtime.host.progress import Progress

__all__ = ["Live"]

LINE_SECONDS = 1.0
"""Off a terminal, a line about a processor's steps is printed at most this often."""


class Live:
    """The progress of a run on standard output (a context manager).

    Args:
        flow: The dataflow that runs.
        quiet: Show only a takeover, warnings, the steps that wait for the next run, and the last line.
        available_now: Whether the run ends with the input.
    """

    def __init__(self, flow: Dataflow, *, quiet: bool, available_now: bool = False) -> None:
        self._flow = flow
        self._stages = Stages(flow, quiet=quiet, available_now=available_now)
        self._quiet = quiet
        self._console = Console(stderr=False)
        self._table = self._console.is_terminal and not quiet
        self._rows: dict[str, Progress] = {}
        self._checkpoints: dict[str, int] = {}
        self._printed: dict[str, float] = {}
        self._began = time.monotonic()
        self._taken: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._steps = 0
        self._replayed = 0
        self._live: RichLive | None = None

    def __enter__(self) -> Self:
        if self._table:
            self._live = RichLive(self._draw(), console=self._console, refresh_per_second=8)
            self._live.start()
        return self

    def show(self, progress: Progress) -> None:
        """Note what was done, and show it."""
        self._stages.show(progress)
        if progress.what == "checkpoint":
            self._checkpoints[progress.processor] = progress.time
        if progress.what in ("step", "commit"):
            self._rows[progress.processor] = progress
        if progress.what == "commit":
            self._given[progress.processor] += progress.numOutputRows
        if progress.what == "take":
            self._steps += 1
        if progress.what == "step":
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
            print(
                f"{progress.processor}: {mode} {progress.time}, {progress.numInputRows} rows in "
                f"{progress.durationMs:.0f} ms, last checkpoint {self._checkpoints.get(progress.processor, '-')}",
                flush=True,
            )

    def _draw(self) -> Table:
        table = Table(
            title=f"{self._flow.name}: {self._taken.total():,} rows in {time.monotonic() - self._began:.0f} s"
        )
        for heading in ("processor", "step", "rows/s", "ms", "steps behind", "last checkpoint", "mode"):
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
                str(self._checkpoints.get(name, "")),
                (self._stages.replaying(progress) if progress.replay else "live") if step else "",
            )
        return table

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if error is None:
            steps = f"stopped cleanly after {self._steps:,} new steps"
            order = {name: place for place, name in enumerate(self._flow.processors)}
            named = [(name, self._given[name]) for name in sorted(self._given, key=lambda name: order.get(name, 0))]
            taken = [f"{rows:,} rows of {name}" for name, rows in self._taken.items() if rows]
            given = [f"{rows:,} to {name}" for name, rows in named if rows]
            counts = "; ".join(filter(None, (", ".join(taken), ", ".join(given))))
            replayed = f"; replayed {self._replayed:,} steps of processors" if self._replayed else ""
            print(f"{self._flow.name}: {steps}{': ' if counts else ''}{counts}{replayed}", flush=True)
        sys.stdout.flush()


def _behind(progress: Progress) -> str:
    """Return how many steps wait, and the size of their rows in scratch.

    A source closes no more than `MESSAGES_AHEAD`, so that more may wait behind them.
    """
    more = "+" if progress.behind >= MESSAGES_AHEAD else ""
    size = f", {decimal(progress.bytesBehind)}" if progress.bytesBehind else ""
    return f"{progress.behind}{more}{size}"
