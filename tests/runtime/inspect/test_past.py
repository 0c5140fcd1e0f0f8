"""The steps and operations of stores in known states."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from boatlift.runtime.inspect.contents import log_at
from boatlift.runtime.inspect.past import PastOperations, operations_of, steps_of
from boatlift.storage.log import Log
from boatlift.storage.log_reader import Group, LogReader
from boatlift.storage.records.facts import StepDigest, Truncation
from boatlift.storage.records.records import Claim, Override, RestorePoint, SinkCommit, Stopped
from support.engine.hosts import open_store, run
from support.engine.memory_engine import PROGRAM, MemoryEngine, World
from support.worlds.facts import made, run_of, saved
from support.worlds.logs import manifest_of

AT = 1_700_000_000_000


def begun(root: Path, at: int = AT) -> Log:
    log = Log.open(open_store(root), "flow", clock=lambda: at + 7)
    log.claim(Claim("host", 1, at, PROGRAM, {}))
    return log


def test_steps_have_the_time_of_their_record_and_say_whether_they_were_executed_again(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append([made(0, "rows"), made(1, "rows")])
    log.append([StepDigest("clean", 0, "d", 10, 2.5), StepDigest("clean", 1, "d", 11, 3.0)])
    log.append([SinkCommit("all", 1), saved(0, run_of(b"state", "runs/1"))])
    log.append([Truncation({"rows": (1,), "clean": (0,), "sums": (0,)}, {})])
    log.append([StepDigest("clean", 1, "d", 11, 4.0)])
    past = steps_of(log_at(tmp_path))
    assert [tuple(getattr(each, field) for field in each.__struct_fields__) for each in past.steps] == [
        ("clean", 0, AT + 7, 2.5, 10, False),
        ("clean", 1, AT + 7, 3.0, 11, False),
        ("clean", 1, AT + 7, 4.0, 11, True),
    ]
    assert [(each.unit, each.step, each.at, each.bytes) for each in past.checkpoints] == [("sums", 0, AT + 7, 5)]
    assert [(each.sink, each.step) for each in past.commits] == [("all", 1)]
    assert [(each.unit, each.step) for each in past.rollbacks] == [("clean", 0), ("sums", 0)]


def test_operations_are_told_newest_first_and_claims_for_ever(tmp_path: Path) -> None:
    log = begun(tmp_path)
    log.append([made(0, "rows"), Override("skipped", "clean", 0, "on request")])
    log.append([RestorePoint("noon", AT + 5)])
    log.append([Stopped()])
    manifest_of(log)
    later = begun(tmp_path, AT + 1000)
    later.append([Truncation({"rows": (0,), "clean": ()}, {})])
    told = [(each.kind, each.who, each.at) for each in operations_of(log_at(tmp_path))]
    assert told[:2] == [("rollback", "", AT + 1007), ("claim", "host:1", AT + 1000)]
    assert told[-1] == ("claim", "host:1", AT)
    assert next(each.said for each in operations_of(log_at(tmp_path))) == "a recovery went back: clean to step -1"


def test_a_run_in_good_order_is_a_claim_and_a_stop(tmp_path: Path) -> None:
    run(MemoryEngine(World()), open_store(tmp_path))
    kinds = [each.kind for each in operations_of(log_at(tmp_path))]
    assert (kinds[0], kinds[-1]) == ("stop", "claim")


def test_operations_that_are_followed_are_those_of_the_whole_log_and_cost_its_new_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = begun(tmp_path)
    followed = log_at(tmp_path)
    operations, read = PastOperations(followed), list[int]()
    monkeypatch.setattr(LogReader, "_group", noting(LogReader._group, read))

    def newest(new: int) -> None:
        followed.catch_up()
        read.clear()
        found = operations.newest()
        assert len(read) == new
        assert found == operations_of(log_at(tmp_path))

    newest(3)  # the claim, and twice more as the one of the owner
    newest(0)
    for step in range(5):
        log.append([made(step, "rows"), Override("skipped", "clean", step, "on request")])
    newest(5)
    log.append([Stopped()])
    newest(1)
    manifest_of(log)
    log.truncate()
    newest(1)
    later = begun(tmp_path, AT + 1000)
    later.append([Truncation({"rows": (0,), "clean": ()}, {})])
    newest(6)


def noting(real: Callable[..., Group], read: list[int]) -> Callable[..., Group]:
    def group(self: LogReader, number: int, *content: bytes) -> Group:
        read.append(number)
        return real(self, number, *content)

    return group
