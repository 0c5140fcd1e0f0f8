"""Iterations of steps that are not done: of which step and input they are, and when their folders go."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from boatlift.operators.view.unfinished import UnfinishedIterations, history_of
from boatlift.runtime.machine.instructions import Message, StepInput
from boatlift.storage.records.payloads import RunsPayload, SourcePayload, to_json

OF_SOURCE = SourcePayload({"files": ["a"]}, 1_000, 7)
OF_UNIT = RunsPayload((), 3, "d1", 1_000, 7, bounds=(1, 2))


def taken(number: int = 3, *payloads: SourcePayload | RunsPayload) -> StepInput:
    sent = [Message(f"edge{at}", number, to_json(each)) for at, each in enumerate(payloads or (OF_SOURCE, OF_UNIT))]
    return StepInput(number, tuple(sent))


def test_a_history_is_that_of_all_input_and_of_what_executes_it() -> None:
    streams = ["a", "b"]
    own = history_of(taken(), "before", streams, "program")
    assert own == history_of(taken(), "before", ["b", "a"], "program")
    others = [
        history_of(taken(4), "before", streams, "program"),
        history_of(taken(), "other", streams, "program"),
        history_of(taken(), None, streams, "program"),
        history_of(taken(), "before", ["a"], "program"),
        history_of(taken(), "before", streams, "another"),
        history_of(taken(3, OF_SOURCE), "before", streams, "program"),
        history_of(taken(3, OF_UNIT, OF_SOURCE), "before", streams, "program"),
    ]
    replace = msgspec.structs.replace
    others += [
        history_of(taken(3, replace(OF_SOURCE, **changed), OF_UNIT), "before", streams, "program")
        for changed in ({"position": {"files": ["b"]}}, {"clock": 1_001}, {"seed": 8})
    ]
    others += [
        history_of(taken(3, OF_SOURCE, replace(OF_UNIT, **changed)), "before", streams, "program")
        for changed in ({"rows": 4}, {"digest": "d2"}, {"clock": 1_001}, {"seed": 8}, {"bounds": (1, 3)})
    ]
    assert len({own, *others}) == 1 + len(others)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """The scratch of an owner."""
    (tmp_path / "5").mkdir()
    return tmp_path / "5"


def kept(folder: Path, token: int) -> Path:
    """Keep rounds in the folder of a step, as an owner's task does."""
    place = folder / str(token) / "loop"
    place.mkdir(parents=True)
    (place / "rounds.json").touch()
    return folder


def test_rounds_of_a_step_stay_until_it_is_done_whatever_comes_before(scratch: Path) -> None:
    killed = kept(UnfinishedIterations(scratch, "unit", 5).of(3, "h3"), 5)
    later = UnfinishedIterations(scratch.with_name("6"), "unit", 6)
    for step in range(3):
        assert later.of(step, f"h{step}") != killed
        kept(later.of(step, f"h{step}"), 6)
        later.done(step, f"h{step}")
    assert later.of(3, "h3") == killed
    assert [each.name for each in killed.parent.iterdir()] == [killed.name]
    assert (killed / "5" / "loop" / "rounds.json").exists()
    kept(killed, 6)
    later.done(3, "h3")
    assert not killed.parent.exists()


def test_rounds_of_other_input_and_of_earlier_steps_go(scratch: Path) -> None:
    rounds = UnfinishedIterations(scratch, "unit", 5)
    replaced, passed, later = (kept(rounds.of(*step), 4) for step in ((3, "of other input"), (2, "h2"), (7, "h7")))
    assert rounds.of(3, "h3") not in (replaced, passed, later)
    assert [replaced.exists(), passed.exists(), later.exists()] == [False, False, True]
    assert rounds.of(8, "h8") != later
    assert not later.exists()


def test_an_owner_that_was_taken_for_dead_removes_nothing_of_its_successor(scratch: Path) -> None:
    older, newer = UnfinishedIterations(scratch, "unit", 5), UnfinishedIterations(scratch.with_name("6"), "unit", 6)
    own = kept(older.of(3, "h3"), 5)
    assert kept(newer.of(3, "h3"), 6) == own
    older.of(3, "of other input")
    older.of(4, "h4")
    older.done(3, "h3")
    assert [each.name for each in own.iterdir()] == ["6"]
    newer.done(3, "h3")
    assert not own.parent.exists()
