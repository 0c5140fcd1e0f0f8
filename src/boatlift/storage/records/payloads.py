"""Payloads of messages and states: JSON in the log (`docs/formats/log.md`), typed in the program.

The payload of a source's step names its input; the payload of a unit lists runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from boatlift.decoders import look_up
from boatlift.errors import RESTORE, DataError
from boatlift.storage.records.records import RunRef

INPUT_LOG = "input_log"
"""The entry of a position with the number of the newest object of the source's input log that the step reads. Each
source with an input log writes it, so that `verify` detects a lost object."""


NO_WATERMARK = -(1 << 62)
"""The watermark of a stream without rows: earlier than every time, in milliseconds since 1970."""


class StepClock(NamedTuple):
    """The clock, in milliseconds since 1970, and the random seed of a step."""

    clock: int
    seed: int


class SourcePayload(msgspec.Struct, frozen=True):
    """The determinants of a source's step, which are also the source's message.

    Attributes:
        position: The input of the step; the source's own JSON.
        clock, seed: See `StepClock`.
    """

    position: dict[str, Any]
    clock: int
    seed: int

    @property
    def step_clock(self) -> StepClock:
        return StepClock(self.clock, self.seed)


class RunsPayload(msgspec.Struct, frozen=True):
    """A message or a state of a unit: runs by name.

    Attributes:
        rows: Number of rows of a message; None for a state.
        digest: Of a message: the digest of all rows of the step, 16 hex digits. None for a state.
        clock, seed: Of a message: those of the sending step; None for a step without input. Of a state with timers
            `clock` is the time up to which they have fired.
        tables: Of a state with named parts: part to its messages in order, each the names of its runs. Else None.
        bounds: Of a message of a stream with LATENESS: the bounds before and after the step, in milliseconds since
            1970. No row of the step is earlier than the first, no row of a later step earlier than the second. Of a
            state that goes by such bounds: the bound up to which timers have fired and windows have closed, and the
            newest that was heard of.
        bounds_by: Of a message of a stream whose rows come by several paths with bounds: each path by which rows of
            this step came, to its bounds.
        history: Of the state of a view with loops: identifies all input that it follows from.
        heard: Of the state of a unit that goes by the bounds of several paths, or of a view whose rows expire: each
            path to the newest bound of event time that was heard of.
        report: Of a state: numbers of the operator's own. In the JSON each stands beside the other fields.
    """

    runs: tuple[RunRef, ...]
    rows: int | None = None
    digest: str | None = None
    clock: int | None = None
    seed: int | None = None
    tables: dict[str, tuple[tuple[str, ...], ...]] | None = None
    bounds: tuple[int, int] | None = None
    history: str | None = None
    heard: dict[str, int] | None = None
    bounds_by: dict[str, tuple[int, int]] | None = None
    report: dict[str, Any] = {}

    @property
    def step_clock(self) -> StepClock:
        """The clock and seed for the functions that read this message.

        Raises:
            DataError: `[CORRUPT]` the payload has none, so no unit sent it.
        """
        if self.clock is None or self.seed is None:
            raise _corrupt("a message of a unit lacks `clock` or `seed`")
        return StepClock(self.clock, self.seed)


Payload = SourcePayload | RunsPayload

_FIELDS = frozenset(RunsPayload.__struct_fields__)


look_up(RunRef, SourcePayload, RunsPayload)


def payload_of(json: Any) -> Payload:
    """Return the payload in a JSON object of the log or of an engine.

    Args:
        json: A source's if it has `position`; else a unit's, with its `report` in further keys.

    Raises:
        DataError: `[CORRUPT]` the JSON is neither.
    """
    try:
        if isinstance(json, Mapping) and "position" in json:
            return msgspec.convert(json, SourcePayload)
        report = report_of(json)
        return msgspec.convert({**json, "report": report} if report else json, RunsPayload)
    except msgspec.ValidationError as error:
        raise _corrupt(f"a payload cannot be read: {error}") from error


def to_json(payload: Payload) -> dict[str, Any]:
    """Return the JSON of a payload, without fields that are None."""
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
        "history": payload.history,
        "heard": payload.heard,
        "bounds_by": None if payload.bounds_by is None else {path: list(b) for path, b in payload.bounds_by.items()},
    }
    assert payload.report.keys().isdisjoint(_FIELDS), "a number of an operator's own has the name of a field"
    present = {name: value for name, value in fields.items() if value is not None}
    return {"runs": [msgspec.to_builtins(run) for run in payload.runs], **present, **payload.report}


def report_of(json: Any) -> dict[str, Any]:
    """Return the numbers of an operator's own in the JSON of a state; none in JSON that is no unit's payload."""
    return {key: json[key] for key in json if key not in _FIELDS} if isinstance(json, Mapping) else {}


def runs_of(json: Any) -> Iterator[RunRef]:
    """Yield the runs in the JSON of a payload; none for a source's, or for JSON that is no payload."""
    if isinstance(json, dict):
        yield from (msgspec.convert(run, RunRef) for run in json.get("runs", ()))


def input_log_of(outcome: Any) -> int:
    """Return the number of the newest object of an input log that a source's step reads.

    Returns:
        0 if the position has no such entry: the source has no input log, or the position is older than `INPUT_LOG`.
    """
    position = outcome.get("position") if isinstance(outcome, Mapping) else None
    number = position.get(INPUT_LOG) if isinstance(position, Mapping) else None
    return number if isinstance(number, int) else 0


def names_of_runs(payloads: Iterable[Any]) -> set[str]:
    """Return the names of all runs in some payloads."""
    # Without msgspec: each garbage collection visits all payloads of the store.
    return {run["name"] for payload in payloads if isinstance(payload, dict) for run in payload.get("runs", ())}


def _corrupt(fault: str) -> DataError:
    return DataError("CORRUPT", f"{fault}: {RESTORE}")


NOTHING: Mapping[str, Any] = to_json(RunsPayload((), rows=0, digest=f"{0:016x}"))
"""The message of a time without rows. A sink commits it too, since its steps are numbered without a gap."""
