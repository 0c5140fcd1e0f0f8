"""The folders with the loop checkpoints of steps that are not done."""

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

ITERATIONS = "rounds"
"""The folder of all units, beside the scratch of owners: a later process reads it."""


def history_of(take: StepInput, before: str | None, streams: Iterable[str], program: str) -> str:
    """Return a hash of all that a step's state and rows depend on: the program, and the inputs up to this step.

    Args:
        before: The hash of the step before; None before the first.
        streams: The streams with rows: a step that is skipped has none.
        program: Identifies the view, and the versions that execute it.
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
    """Return the identity of a message's rows: the position of a source's, the digest of a unit's."""
    known = payload_of(payload)
    if isinstance(known, SourcePayload):
        return [known.position, known.clock, known.seed]
    return [known.rows, known.digest, known.clock, known.seed, known.bounds, *filter(None, [known.bounds_by])]


class UnfinishedIterations:
    """The folders with the loop checkpoints of a unit's unfinished steps: `STEP-HISTORY/OWNER`.

    Nothing of a newer owner is removed: a process that seemed dead may still run.
    """

    def __init__(self, scratch: Path, unit: str, token: int) -> None:
        self._folder, self._token = scratch.parent / ITERATIONS / unit, token

    def of(self, step: int, history: str) -> Path:
        """Return the folder of a step that begins.

        Steps begin in order. So the checkpoints of earlier steps, and of this one with another history, are removed;
        those of later steps stay: a killed step begins again after the steps before it.
        """
        own = self._folder / f"{step}-{history}"
        for other in _entries(self._folder):
            if other != own and _number(other) <= step:
                self._remove(other)
        return own

    def done(self, step: int, history: str) -> None:
        """Remove the loop checkpoints of a step that is done."""
        self._remove(self._folder / f"{step}-{history}")

    def _remove(self, folder: Path) -> None:
        for each in _entries(folder):
            if _number(each) <= self._token:
                shutil.rmtree(each, ignore_errors=True)
        for emptied in (folder, self._folder):
            with suppress(OSError):
                emptied.rmdir()


def _entries(folder: Path) -> list[Path]:
    """Return the entries of a folder; another owner may remove it meanwhile."""
    with suppress(OSError):
        return [*folder.iterdir()]
    return []


def _number(entry: Path) -> int:
    """Return the number with which a name begins: of a step, or of an owner; -1 if there is none."""
    number = entry.name.partition("-")[0]
    return int(number) if number.isdecimal() else -1
