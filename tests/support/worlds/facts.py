"""Records for tests of the log: plain ones, and well-formed sequences drawn by Hypothesis."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import xxhash
from hypothesis import strategies as st

from boatlift.storage.filesystem import FileSystem
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, GarbageCollection, StepDigest, Truncation
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.payloads import RunsPayload, to_json
from boatlift.storage.records.records import (
    Claim,
    Cursor,
    NamesObject,
    Record,
    RunRef,
    SinkCommit,
    Snapshot,
    Stopped,
    TakenNames,
)
from boatlift.storage.store import Store


class Unsynced(FileSystem):
    """A real file system that skips what only a power loss could tell: for tests that write thousands of objects."""

    def write_new(self, path: Path, content: Iterable[bytes]) -> None:
        with path.open("xb") as file:
            file.writelines(content)

    def sync_file(self, path: Path) -> None:
        pass

    def sync_folder(self, path: Path) -> None:
        pass


CLAIM = Claim("host", 1, 0, {"graph": "g"}, {"spark": "4.3.0"})


def made(time: int, source: str = "numbers") -> Determinant:
    """The determinants of a time."""
    position = {"start": time * 10, "end": time * 10 + 10}
    return Determinant(source, time, None, {"position": position, "clock": time * 1000, "seed": time})


def last_made(history: LogHistory, source: str = "numbers") -> int:
    """The last time whose determinants are known, -1 if none are."""
    return max(history.live_records.determinants.get(source, {}), default=-1)  # type: ignore[type-var, return-value]


def gave(time: int, processor: str = "sums") -> StepDigest:
    """The digest of what a time gave."""
    return StepDigest(processor, time, f"{time:032x}")


def saved(time: int, *runs: RunRef, processor: str = "sums") -> Checkpoint:
    """A checkpoint of these runs."""
    return Checkpoint(processor, (time,), payload_with(runs))


def payload_with(runs: Iterable[RunRef], **fields: Any) -> dict[str, Any]:
    """The JSON of a unit's payload.

    Args:
        runs: The runs.
        fields: The other fields of `RunsPayload`.
    """
    return to_json(RunsPayload(tuple(runs), **fields))


def stable(frontiers: dict[str, int]) -> GarbageCollection:
    """Stable frontiers that moved."""
    maximal = {name: (time,) if time >= 0 else () for name, time in frontiers.items()}
    return GarbageCollection(maximal, maximal, {})


def cut(frontiers: dict[str, int]) -> Truncation:
    """A recovery to these times."""
    return Truncation({name: (time,) if time >= 0 else () for name, time in frontiers.items()}, {})


def run_of(content: bytes, name: str) -> RunRef:
    """Names a run with these bytes."""
    return RunRef(name, 0, 1, 1, 0, 1, len(content), xxhash.xxh3_128_hexdigest(content))


def small_store(root: Path, *, stopped: bool) -> tuple[Store, list[Record]]:
    """A store with every kind of object in it, and the records that a log opened on it must have applied.

    Args:
        root: Where to.
        stopped: Whether the owner stopped in good order.
    """
    store = LocalStore.open(root, create=True, filesystem=Unsynced())
    log = Log.open(store, "small")
    log.claim(CLAIM)
    log.append([made(0), made(1)])
    content = b"the rows of a run" * 3
    store.create("runs/1", content)
    log.append([gave(0), saved(0, run_of(content, "runs/1")), stable({"numbers": 0, "sums": 0})])
    snapshot = log.history.snapshot()
    log.checkpoint()
    log.truncate()
    records: list[Record] = [snapshot, made(2), SinkCommit("table", 0), gave(1)]
    log.append(records[1:2])
    log.append(records[2:])
    if stopped:
        records.append(Stopped())
        log.append([Stopped()])
    return store, records


_NAMES = st.sampled_from(["a", "b"])


@st.composite
def sequences(draw: st.DrawFn, longest: int = 40) -> list[Record]:
    """What a log can hold: times in order, stable frontiers that only move forward, no rollback below them."""
    history: list[Record] = [CLAIM]
    next_input = dict.fromkeys("ab", 0)
    next_output = dict.fromkeys("ab", 0)
    reached = dict.fromkeys("ab", -1)
    for _ in range(draw(st.integers(0, longest))):
        name = draw(_NAMES)
        kind = draw(
            st.sampled_from(["input", "input", "output", "output", "checkpoint", "stable", "other", "truncate"])
        )
        match kind:
            case "input":
                history.append(made(next_input[name], name))
                next_input[name] += 1
            case "output" if next_output[name] < next_input[name]:
                history.append(gave(next_output[name], name))
                next_output[name] += 1
            case "checkpoint" if next_output[name] > 0:
                time = next_output[name] - 1
                history.append(saved(time, run_of(bytes([time]), f"runs/{name}{time}"), processor=name))
            case "stable":
                reached[name] = draw(st.integers(reached[name], max(reached[name], next_output[name] - 1)))
                history += [*_cursor(history, name, reached[name]), stable({name: reached[name]})]
            case "truncate":
                last = draw(st.integers(reached[name], max(reached[name], next_input[name] - 1)))
                next_input[name] = min(next_input[name], last + 1)
                next_output[name] = min(next_output[name], last + 1)
                history.append(cut({name: last}))
            case "other":
                time = next_output[name] - 1
                choices: list[Record] = [
                    SinkCommit(name, time),
                    Stopped(),
                    Claim("other", 2, 1, {"graph": "g"}, {"spark": draw(st.sampled_from(["4.3.0", "4.4.0"]))}),
                ]
                history.append(draw(st.sampled_from(choices)))
            case _:
                pass
    return history


def _cursor(records: list[Record], source: str, last: int) -> list[Record]:
    """What is written with a stable frontier: the cursor after it."""
    if last < 0:
        return []
    known = sum(len(each.names) for each in records if isinstance(each, Cursor) and each.source == source)
    names = tuple(f"{time}" for time in range(known, last + 1))
    return [Cursor(source, last, {"taken": [time * 10 for time in range(last + 1)]}, names)]


def a_snapshot() -> Snapshot:
    """A snapshot that has something in each field."""
    run = run_of(b"x", "runs/x")
    return Snapshot(
        dataflow="small",
        program={"graph": "g"},
        environment={"spark": "4.3.0"},
        cursors={"numbers": (3, {"taken": [1, 2]})},
        committed={"table": 3},
        facts=(stable({"sums": 3}), made(4), gave(4), saved(4, run)),
        names={"numbers": TakenNames((NamesObject("names/000000000001-000000000002", "0" * 32, 2),), ("c",))},
    )
