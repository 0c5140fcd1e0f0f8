"""Iterations of a step that no process has finished: where they are kept, and for which step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import xxhash

from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.payloads import SourcePayload, payload_of

__all__ = ["UnfinishedIterations", "history_of"]

ITERATIONS = "rounds"
"""The folder of all units, beside the scratch of owners: a process that comes after reads it."""


def history_of(take: StepInput, before: str | None, streams: Iterable[str], program: str) -> str:
    """Return what identifies a step by all that its state and its rows follow from: program, inputs up to this step.

    Args:
        take: The step.
        before: The same of the step before; None before the first.
        streams: The streams that bring rows: a step that is skipped takes none.
        program: Identifies the view, and what executes it.
    """
    told = [
        program,
        before,
        str(take.number),
        sorted(streams),
        [[each.edge, _content(each.payload)] for each in take.inputs],
    ]
    return xxhash.xxh3_128_hexdigest(json.dumps(told, sort_keys=True).encode())


def _content(payload: Any) -> Any:
    """Return what the rows of a message follow from: of a source their position, of a unit their digest."""
    known = payload_of(payload)
    if isinstance(known, SourcePayload):
        return [known.position, known.clock, known.seed]
    return [known.rows, known.digest, known.clock, known.seed, known.bounds]


class UnfinishedIterations:
    """The folders with the rounds of a unit's steps that are not done: `STEP-HISTORY/OWNER`.

    Nothing of a newer owner is removed: a process that was taken for dead may still be at work.

    Args:
        scratch: The scratch of the owner.
        unit: The unit.
        token: The owner's.
    """

    def __init__(self, scratch: Path, unit: str, token: int) -> None:
        self._folder, self._token = scratch.parent / ITERATIONS / unit, token

    def of(self, step: int, history: str) -> Path:
        """Return the folder of a step that begins.

        Steps begin in order. So the rounds of earlier steps are of no use, nor are those of this one with another
        history; those of later steps are: a step that was killed is begun again after the steps before it.
        """
        own = self._folder / f"{step}-{history}"
        for other in _entries(self._folder):
            if other != own and _number(other) <= step:
                self._remove(other)
        return own

    def done(self, step: int, history: str) -> None:
        """Remove the rounds of a step: it is done."""
        self._remove(self._folder / f"{step}-{history}")

    def _remove(self, folder: Path) -> None:
        for each in _entries(folder):
            if _number(each) <= self._token:
                shutil.rmtree(each, ignore_errors=True)
        for emptied in (folder, self._folder):
            with suppress(OSError):
                emptied.rmdir()


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder; another owner may remove it meanwhile."""
    with suppress(OSError):
        return [*folder.iterdir()]
    return []


def _number(entry: Path) -> int:
    """Return the number with which a name begins: of a step, or of an owner; -1 if there is none."""
    number = entry.name.partition("-")[0]
    return int(number) if number.isdecimal() else -1
