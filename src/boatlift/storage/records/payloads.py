"""Payloads: the messages and states that facts name, as JSON in the log and as types in the program.

A payload is one of two: that of a source's step names its input outside, that of a unit lists runs.
`docs/formats/log.md` describes the JSON; `payload_of` reads it, and `to_json` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from boatlift.decoders import look_up
from boatlift.errors import DataError
from boatlift.storage.records.damage import RESTORE
from boatlift.storage.records.records import RunRef

__all__ = [
    "INPUT_LOG",
    "NOTHING",
    "Payload",
    "RunsPayload",
    "SourcePayload",
    "StepClock",
    "input_log_of",
    "names_of_runs",
    "payload_of",
    "runs_of",
    "to_json",
]


INPUT_LOG = "input_log"
"""The entry of a position that names an object: the number of the newest object of the source's input log that the step
rests on. Each source that keeps its rows in the store writes it, so that `verify` misses what is lost."""


class StepClock(NamedTuple):
    """The clock and the seed under which the functions of a step run.

    Attributes:
        clock: In milliseconds since 1970.
        seed: The seed of random numbers.
    """

    clock: int
    seed: int


class SourcePayload(msgspec.Struct, frozen=True):
    """The determinants of a source's step, which are also the message that the source sends.

    Attributes:
        position: The input of the step; the source's own JSON.
        clock: The time of day that the step's functions see, in milliseconds since 1970.
        seed: The seed of the step's random numbers.
    """

    position: dict[str, Any]
    clock: int
    seed: int

    @property
    def step_clock(self) -> StepClock:
        """The clock and the seed under which the step's functions run."""
        return StepClock(self.clock, self.seed)


class RunsPayload(msgspec.Struct, frozen=True):
    """A message or a state of a unit: runs by name.

    Attributes:
        runs: The runs.
        rows: Number of rows of a message; None for a state.
        digest: Of a message: the digest of all rows of the step, 16 hex digits. None for a state.
        clock, seed: Of a message: those of the step that made it; None for a step of no input. Of a state with timers
            `clock` is the time up to which they have fired.
        tables: Of a state with named parts: part to its messages in order, each the names of its runs. Else None.
        bounds: Of a message of a stream with LATENESS: the bounds before and after the step, in milliseconds since
            1970. No row of the step is earlier than the first, no row of a later step earlier than the second. Of a
            state that goes by such bounds: the bound up to which timers have fired and windows have closed, and the
            newest that was heard of.
        late: Of the state of a LATENESS: how many rows were late so far.
        bad: Of the state of dead letters: how many bad rows there were so far.
        history: Of the state of a view with loops: identifies all input that it follows from.
        heard: Of the state of a view whose rows expire: each unit that it reads to the newest bound of event time that
            was heard of.
    """

    runs: tuple[RunRef, ...]
    rows: int | None = None
    digest: str | None = None
    clock: int | None = None
    seed: int | None = None
    tables: dict[str, tuple[tuple[str, ...], ...]] | None = None
    bounds: tuple[int, int] | None = None
    late: int | None = None
    bad: int | None = None
    history: str | None = None
    heard: dict[str, int] | None = None

    @property
    def step_clock(self) -> StepClock:
        """The clock and the seed under which the functions run that read this message.

        Raises:
            DataError: `[CORRUPT]` the payload has none, so no unit sent it.
        """
        if self.clock is None or self.seed is None:
            raise _corrupt("a message of a unit lacks `clock` or `seed`")
        return StepClock(self.clock, self.seed)


Payload = SourcePayload | RunsPayload


look_up(RunRef, SourcePayload, RunsPayload)


def payload_of(json: Any) -> Payload:
    """Return the payload that stands in the log, or that an engine handed over, as JSON.

    Args:
        json: With `position` a source's; else a unit's. Other keys than those of the two types are passed over.

    Raises:
        DataError: `[CORRUPT]` the JSON is neither.
    """
    try:
        if isinstance(json, Mapping) and "position" in json:
            return msgspec.convert(json, SourcePayload)
        return msgspec.convert(json, RunsPayload)
    except msgspec.ValidationError as error:
        raise _corrupt(f"a payload cannot be read: {error}") from error


def to_json(payload: Payload) -> dict[str, Any]:
    """Return the JSON of a payload; fields that are None are left out."""
    if isinstance(payload, SourcePayload):
        return {"position": payload.position, "clock": payload.clock, "seed": payload.seed}
    tables = payload.tables
    fields = {
        "rows": payload.rows,
        "digest": payload.digest,
        "clock": payload.clock,
        "seed": payload.seed,
        "tables": None if tables is None else {name: [list(each) for each in part] for name, part in tables.items()},
        "bounds": None if payload.bounds is None else list(payload.bounds),
        "late": payload.late,
        "bad": payload.bad,
        "history": payload.history,
        "heard": payload.heard,
    }
    present = {name: value for name, value in fields.items() if value is not None}
    return {"runs": [msgspec.to_builtins(run) for run in payload.runs], **present}


def runs_of(json: Any) -> Iterator[RunRef]:
    """Yield the runs that the JSON of a payload names; none for a source's, or for JSON that is no payload."""
    if isinstance(json, dict):
        yield from (msgspec.convert(run, RunRef) for run in json.get("runs", ()))


def input_log_of(outcome: Any) -> int:
    """Return the number of the newest object of an input log that a source's step rests on.

    Args:
        outcome: Of the step's determinants.

    Returns:
        0 if the position does not say: the source has no input log, or wrote the position before `INPUT_LOG` existed.
    """
    position = outcome.get("position") if isinstance(outcome, Mapping) else None
    number = position.get(INPUT_LOG) if isinstance(position, Mapping) else None
    return number if isinstance(number, int) else 0


def names_of_runs(payloads: Iterable[Any]) -> set[str]:
    """Return the names of all runs that some payloads name."""
    # By hand, because all that a store keeps is looked at whenever garbage is collected.
    return {run["name"] for payload in payloads if isinstance(payload, dict) for run in payload.get("runs", ())}


def _corrupt(fault: str) -> DataError:
    return DataError("CORRUPT", f"{fault}: {RESTORE}")


NOTHING: Mapping[str, Any] = to_json(RunsPayload((), rows=0, digest=f"{0:016x}"))
"""The message that a sink commits for a time without rows: a sink's steps are numbered without a gap."""
