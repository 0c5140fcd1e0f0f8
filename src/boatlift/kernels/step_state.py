"""The state and the services of a step in a task: runs by part, time, exchange, answers, loop checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from boatlift.errors import DivergedError, UserCodeError
from boatlift.state.codec import KeyedRows, ValueCodec
from boatlift.state.expiry import ExpiryColumn
from boatlift.state.key_groups import Share
from boatlift.state.merge import filtered, merge_rows
from boatlift.state.opened import OpenRun, RunsOnDemand
from boatlift.state.run_file import write_run
from boatlift.storage.records.records import RunRef

if TYPE_CHECKING:
    from boatlift.kernels.network.node import ZSet

NamedRows = Mapping[str, tuple[ValueCodec[Any, Any], KeyedRows[Any]]]
"""Rows by name, with their codec."""


@dataclass(frozen=True, slots=True)
class SavedIterations:
    """The last loop checkpoint."""

    number: int
    runs: Mapping[str, tuple[ValueCodec[Any, Any], Sequence[OpenRun[Any]]]]
    """The rows of all tasks by name, with their codec."""


class LoopCheckpoint(Protocol):
    """The loop checkpoints of a step, for one task: finished iterations, from which a retry resumes.

    A step of a loop may take minutes. Its iterations are saved in order, every few seconds.

    Laws:
        - A loop checkpoint is read only for the step and the input for which it was written.
        - A loop checkpoint that cannot be read is absent: the step begins with iteration 0.
        - A loop checkpoint that cannot be written is skipped; the step continues.
    """

    def read(self) -> SavedIterations | None:
        """Return the last loop checkpoint; None if there is none."""

    @property
    def due(self) -> bool:
        """Whether the next iteration should be saved."""

    def write(self, number: int, rows: NamedRows) -> None:
        """Write a task's rows of all iterations so far; they become valid when `written` is called."""

    def written(self, number: int) -> None:
        """Record that all tasks have written their rows."""


class _NotKept:
    def read(self) -> None:
        return None

    due = False

    def write(self, number: int, rows: NamedRows) -> None:
        del number, rows

    def written(self, number: int) -> None:
        del number


NOT_KEPT: LoopCheckpoint = _NotKept()
"""No loop checkpoints."""


def rows_of_share(codec: ValueCodec[Any, Any], runs: Sequence[OpenRun[Any]], share: Share) -> KeyedRows[Any] | None:
    """Return the rows of runs in a share of the key groups; None if there are none."""
    pieces = [segment.cut(codec, 0, len(segment)) for run in runs for segment in run.segments if len(segment)]
    pieces = [filtered(codec, piece, share.holds(piece.hash)) for piece in pieces]
    pieces = [piece for piece in pieces if len(piece)]
    rows = merge_rows(codec, pieces) if pieces else None
    return rows if rows is not None and len(rows) else None


class Exchange(Protocol):
    """A task's exchange with the other tasks of the step, which all make the same calls in the same order."""

    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        """Return the rows of all tasks in this task's key groups.

        Args:
            keys: The places of the columns of the key; None: all columns.

        Raises:
            UnavailableError: `[TASK_LOST]` another task has ended.
        """

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        """Return the greatest of each number over all tasks.

        Raises:
            UnavailableError: `[TASK_LOST]` another task has ended.
        """


class _Alone:
    def divided(self, rows: ZSet | None, keys: tuple[int, ...] | None) -> ZSet | None:
        del keys
        return rows

    def greatest(self, numbers: Sequence[int]) -> list[int]:
        return list(numbers)


ALONE: Exchange = _Alone()
"""The exchange of a step's only task."""


class Answers:
    """The answers of an external system in a step of a task, by key, in the order in which each key asks.

    Args:
        recorded: The recorded answers of a step that is executed again; None: it asks now.

    Attributes:
        given: The answers of this execution as JSON texts, by the hash of their key.
        failure: The first call that raised an error. It fails the step in any case, because a replay has no such call.
    """

    def __init__(self, processor: str, recorded: Mapping[str, Sequence[str]] | None) -> None:
        self._processor, self._recorded = processor, recorded
        self.given: dict[str, list[str]] = {}
        self.failure: Exception | None = None

    def ask(self, key: int, ask: Callable[[], Any]) -> Any:
        """Return an answer, as JSON represents it.

        Raises:
            UserCodeError: `[USER_CODE]` the answer is no JSON.
            DivergedError: `[DIVERGED]` the step asks more than in its first execution.
        """
        try:
            return self._answer(key, ask)
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _answer(self, key: int, ask: Callable[[], Any]) -> Any:
        of_key = self.given.setdefault(f"{key:x}", [])
        if self._recorded is None:
            text = self._as_json(ask())
        else:
            known = self._recorded.get(f"{key:x}", ())
            if len(of_key) >= len(known):
                raise DivergedError(
                    "DIVERGED",
                    f"a key of {self._processor} asks for more than the {len(known)} answers that it had when the step "
                    "was executed first: let the number of calls depend on the key's rows, state and answers alone",
                )
            text = known[len(of_key)]
        of_key.append(text)
        return json.loads(text)

    def _as_json(self, answer: Any) -> str:
        try:
            return json.dumps(answer)
        except (TypeError, ValueError) as error:
            raise UserCodeError(
                "USER_CODE",
                f"a call of {self._processor} was answered with {type(answer).__name__}, which JSON does not have "
                f"({error}): answer with numbers, text, lists and dicts",
                lasting=True,
            ) from error


V = TypeVar("V")

STATE = ""
"""The name of the only part of a state."""


class KernelTime(Enum):
    """The time of a kernel, by which timers are due, windows close and state expires."""

    NONE = "none"
    CLOCK = "clock"
    """The recorded clock, which is later at each step than at the step before."""
    WATERMARK_BEFORE = "bound before"
    """The watermark by which the rows of the step were judged: that after the step before."""
    WATERMARK = "bound"
    """The watermark with the step's own rows."""


class StepTime(msgspec.Struct, frozen=True, array_like=True):
    """The time of a step, equal on replay. All but `seed` are in milliseconds since 1970."""

    before: int
    """The time after the step before; -1 before the first step, `NO_WATERMARK` for event time."""
    now: int
    """The time at this step (`KernelTime`), which never decreases."""
    seed: int
    clock: int = -1
    """The recorded clock of the step."""


NO_TIME = StepTime(-1, -1, 0)


Runs = RunsOnDemand[Any] | Sequence[OpenRun[Any]]
"""Runs that can be read more than once."""


@dataclass(frozen=True, slots=True)
class StepState:
    """The keyed state of a task before a step, and the services of the step.

    Attributes:
        runs: Part to its runs, of times before this one. They are opened on access, and may be read repeatedly.
        write_to: Returns a fresh file for the run of a part.
        share: The key groups of this task.
        first: Whether this is the processor's first step.
        iterations: The loop checkpoints of the step, in the state of a loop.
        checkpoints_of: Returns them for a node of a network, given its name and the node.
        expiries: Part to the column by which its rows expire; other parts never expire.
        answers: The answers of the external system, for a kernel that records them.
        passed: Part to its time after the step before, in milliseconds since 1970, if known: a view's rows that have
            expired by then are over.
    """

    runs: Mapping[str, Runs]
    write_to: Callable[[str], Path]
    time: int
    share: Share
    first: bool = False
    clock: StepTime = NO_TIME
    exchange: Exchange = ALONE
    iterations: LoopCheckpoint = NOT_KEPT
    checkpoints_of: Callable[[str, Any], LoopCheckpoint] = lambda *_: NOT_KEPT
    expiries: Mapping[str, ExpiryColumn] = field(default_factory=dict)
    answers: Answers | None = None
    passed: Mapping[str, int] = field(default_factory=dict)

    def unexpired(self, part: str, codec: ValueCodec[V, Any], rows: KeyedRows[V]) -> KeyedRows[V]:
        """Return the rows of a part that had not expired before the step."""
        expiry, passed = self.expiries.get(part), self.passed.get(part)
        return rows if expiry is None or passed is None else filtered(codec, rows, expiry.alive(rows, passed))

    def written(
        self,
        processor: str,
        codecs: Mapping[str, ValueCodec[Any, Any]],
        rows: Mapping[str, KeyedRows[Any] | None],
    ) -> dict[str, RunRef]:
        """Write the runs of a step; return them by part. A part without rows has no run."""
        runs = {}
        for part, added in rows.items():
            if added is None or not len(added):
                continue
            times, expiry = (self.time, self.time), self.expiries.get(part)
            run = write_run(
                self.write_to(part), codecs[part], [added], processor=processor, times=times, share=self.share
            )
            runs[part] = run if expiry is None else msgspec.structs.replace(run, expires=expiry.latest(added))
        return runs
