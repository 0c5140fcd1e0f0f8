"""The checkpoints that a rollback can choose from."""

from __future__ import annotations

from pathlib import Path

from boatlift.runtime.inspect.contents import checkpoints_of
from boatlift.storage.records.facts import Checkpoint
from support.engine.hosts import open_store
from support.worlds.facts import payload_with, run_of, saved
from support.worlds.logs import claimed


def test_a_checkpoint_counts_what_it_added_to_the_one_before_of_its_processor(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path))
    first, second = run_of(b"12345", "runs/1"), run_of(b"123", "runs/2")
    log.append([saved(0, first), Checkpoint("other", (0,), payload_with([first]))])
    log.append([Checkpoint("sums", (1,), payload_with([first, second]))])
    reports = {(each.processor, each.step): each for each in checkpoints_of(log)}
    assert {key: (each.files, each.bytes, each.new_bytes) for key, each in reports.items()} == {
        ("sums", 0): (1, 5, 5),
        ("sums", 1): (2, 8, 3),
        ("other", 0): (1, 5, 5),
    }
    assert reports["sums", 1].runs == [first, second]
    assert reports["sums", 1].frontier == (1,)


def test_in_arrival_order_a_step_counts_what_came_of_all_inputs(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path))
    log.append([Checkpoint("asked", (("live->asked", 4), ("queries->asked", 1)), payload_with([]))])
    (report,) = checkpoints_of(log)
    assert report.step == 6, "events 0…6"
