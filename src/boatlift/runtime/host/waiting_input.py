"""What sources could still take, written now and then beside the rows in scratch, where `boatlift status` finds it.

A process that only looks into the store cannot ask a source: it has neither the program nor the passwords.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec

from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import Json, WaitingInput
from boatlift.errors import BoatliftError
from boatlift.runtime.host.event_queue import Answer
from boatlift.runtime.host.workers import Workers
from boatlift.runtime.machine.events import Event

__all__ = ["FILE", "InputReport", "WaitingInputs"]

FILE = "waiting-input.json"

LOOK_SECONDS = 2.0
"""The rest between two looks at a source."""

LOOK_PAUSE = 20
"""A rest is at least so many times as long as the look before it."""


class InputReport(msgspec.Struct, frozen=True):
    """What sources could still take.

    Attributes:
        at: When they were asked, in milliseconds since 1970.
        waiting: Source to what it has; a source that cannot tell, or be reached, is left out.
    """

    at: int
    waiting: Mapping[str, WaitingInput]


class WaitingInputs:
    """Asks the sources of a run.

    Args:
        plan: The dataflow.
        newest: Returns the cursor of a source after all positions so far.
        folder: The owner's scratch.
        workers: Of the host.
        clock: Milliseconds since 1970.
    """

    def __init__(
        self, plan: Plan, newest: Callable[[str], Json], folder: Path, workers: Workers, clock: Callable[[], int]
    ) -> None:
        self._newest, self._folder, self._workers, self._clock = newest, folder, workers, clock
        asked = {name: source.source.capabilities.waiting for name, source in plan.sources.items()}
        self._asked = {name: waiting for name, waiting in asked.items() if waiting is not None}

    def begin(self) -> None:
        """Ask from now on, every few seconds."""
        if self._asked:
            self._workers.submit(self._look)

    def _look(self) -> Answer:
        began = time.monotonic()
        waiting = {}
        for name, ask in self._asked.items():
            try:
                waiting[name] = ask(self._newest(name))
            except BoatliftError:  # the source's own poll says so, and waits until the source is back
                continue
        self._write(InputReport(self._clock(), waiting))
        rest = max(LOOK_SECONDS, LOOK_PAUSE * (time.monotonic() - began))

        def again() -> Iterable[Event]:
            self._workers.submit_after(rest, self._look)
            return ()

        return again

    def _write(self, report: InputReport) -> None:
        written = self._folder / f"{FILE}.new"
        try:
            written.write_bytes(msgspec.json.encode(report))
            written.replace(self._folder / FILE)
        except OSError:  # a newer owner has removed the folder, or the disk is full: the run finds that out
            return
