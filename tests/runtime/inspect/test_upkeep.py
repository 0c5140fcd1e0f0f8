"""What processors keep, and what their last steps cost, of stores in known states."""

from __future__ import annotations

from pathlib import Path

from boatlift.runtime.inspect.explanation import KeptPart, Upkeep, upkeep_of
from boatlift.storage.records.facts import Checkpoint, StepDigest
from boatlift.storage.records.payloads import RunsPayload, to_json
from boatlift.storage.records.records import Claim
from support.engine.hosts import open_store
from support.engine.memory_engine import PROGRAM
from support.worlds.facts import made, run_of, saved
from support.worlds.logs import claimed


def test_the_newest_checkpoint_and_the_last_steps_count(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    log.append([made(time, "rows") for time in range(30)])
    log.append([StepDigest("sums", time, "d", 10 * time, 2.0 * time) for time in range(30)])
    old, new = run_of(b"old", "runs/1"), run_of(b"newer", "runs/2")
    log.append([saved(3, old), saved(5, old, new)])
    upkeep = upkeep_of(log.history)
    whole = KeptPart("", 2, old.rows + new.rows, len(b"old") + len(b"newer"))
    assert upkeep["sums"] == Upkeep(5, [whole], 20, 195, 39.0), "of steps 10…29"
    assert upkeep["clean"] == Upkeep(-1, [], 0, 0, 0.0)


def test_the_parts_of_a_state_count_apart_and_a_run_once(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    log.append([made(0, "rows")])
    left, right = run_of(b"left", "runs/1"), run_of(b"right!", "runs/2")
    tables = {"0/left": ((left.name,), (left.name,)), "0/right": ((right.name,),), "1/rows": ((),)}
    log.append([Checkpoint("sums", (0,), to_json(RunsPayload((left, right), tables=tables)))])
    parts = [KeptPart("0/left", 1, left.rows, len(b"left")), KeptPart("0/right", 1, right.rows, len(b"right!"))]
    assert upkeep_of(log.history)["sums"].state == parts
