"""Rounds of a step that no process has finished: where they are kept, and for which step."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash

from boatlift.runtime.machine.instructions import StepInput
from boatlift.storage.records.payloads import SourcePayload, payload_of

__all__ = ["UnfinishedRounds", "history_of"]

ROUNDS = "rounds"
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


class UnfinishedRounds:
    """The folder with the rounds of a unit's step under way.

    Args:
        scratch: The scratch of the owner.
        unit: The unit.
    """

    def __init__(self, scratch: Path, unit: str) -> None:
        self._folder = scratch.parent / ROUNDS / unit

    def of(self, history: str) -> Path:
        """Return the folder of a step; those of others are removed."""
        for other in self._folder.iterdir() if self._folder.is_dir() else ():
            if other.name != history:
                shutil.rmtree(other, ignore_errors=True)
        return self._folder / history

    def done(self) -> None:
        """Remove the folder: its step is done."""
        shutil.rmtree(self._folder, ignore_errors=True)
