"""The laws of sinks that share transactions, one test each (`boatlift.dataflow.contracts.SharesTransaction`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from boatlift.dataflow.contracts import (
    Committed,
    Outcome,
    SharesTransaction,
    Sink,
    SinkContext,
    StepWrite,
    commit_together,
)
from boatlift.errors import BoatliftError, DataError, DivergedError, FencedError
from connectors.conformance import AnyCase, Row, context, rows_of, stage, visible
from connectors.interrupted import Child, Tracer

NAMES = ("one", "two")
NOTE = b"of the owner"


class Members:
    """Two sinks of one place, in tables that have their names from two folders; a step is written in both at once."""

    def __init__(self, case: AnyCase, folder: Path, names: Sequence[str] = NAMES) -> None:
        self.case, self.names = case, names
        folder.mkdir(parents=True, exist_ok=True)
        self.folders = [folder / name for name in names]
        self.sinks: list[Sink] = [case.make(each) for each in self.folders]

    def open(self, token: int = 1) -> list[Committed | None]:
        return [sink.open(self.context(name, token)) for sink, name in zip(self.sinks, self.names, strict=True)]

    def context(self, name: str, token: int) -> SinkContext:
        return replace(context(token), sink=name)

    def write(self, at: int, step: int, *, digest: str = "", rows: Sequence[Row] | None = None) -> StepWrite:
        sink, folder = self.sinks[at], self.folders[at]
        count = len(rows_of(step) if rows is None else rows)
        return self.shares(at).step_write(step, count, digest or f"digest {step}", stage(sink, folder, step, rows))

    def shares(self, at: int) -> SharesTransaction:
        shares = self.sinks[at].capabilities.shares_transaction
        assert shares is not None
        return shares

    def put(self, step: int) -> list[Outcome]:
        return commit_together(self.shares(0), [self.write(at, step) for at in range(len(self.sinks))])

    def assert_seen(self, *steps: int) -> None:
        for sink, folder, many in zip(self.sinks, self.folders, steps, strict=True):
            assert self.case.read(folder) == visible(sink, many)

    def close(self) -> None:
        for sink in self.sinks:
            sink.close()


def put_traced(tracer: Tracer, case: AnyCase, folder: Path, token: int, step: int) -> tuple[list[str], int]:
    """In another process: opens both sinks and writes a step of both, traced."""
    members = Members(case, folder)
    members.open(token)
    keeps = members.sinks[0].capabilities.keeps_note
    assert keeps is not None
    keeps.note(NOTE)
    steps = [members.write(at, step) for at in range(2)]
    tracer.visits = 2  # the second sink's write has the lines of the first one's
    with tracer.on():
        outcomes = commit_together(members.shares(0), steps)
    members.close()
    return [each.name for each in outcomes], tracer.lines


def open_traced(tracer: Tracer, case: AnyCase, folder: Path, token: int) -> int:
    """In another process: opens both sinks, traced; first the one that was written under the other one's id."""
    members = Members(case, folder)
    tracer.visits = 2
    with tracer.on():
        for at in (1, 0):
            members.sinks[at].open(members.context(NAMES[at], token))
    members.close()
    return tracer.lines


class JointLaws:
    """What `SharesTransaction` promises, law by law."""

    case: ClassVar[AnyCase]
    stride: ClassVar[int] = 1
    """A commit is killed at every `stride`-th line, and at the last; the open of two sinks at a third of them."""

    @pytest.fixture
    def members(self, tmp_path: Path) -> Iterator[Members]:
        made = Members(self.case, tmp_path / "place")
        yield made
        made.close()

    def test_sinks_of_one_place_say_so(self, members: Members) -> None:
        assert members.shares(0).shared_place == members.shares(1).shared_place

    def test_a_step_of_all_is_visible_with_each_sinks_own_record(self, members: Members) -> None:
        members.open()
        for step in range(3):
            assert members.put(step) == [Outcome.APPENDED] * 2
            members.assert_seen(step + 1, step + 1)
        members.close()
        assert members.open(2) == [Committed(2, len(rows_of(2)), "digest 2")] * 2

    def test_a_sink_takes_steps_by_itself_before_it_joins_others_and_after_it_has_left_them(
        self, members: Members
    ) -> None:
        members.open()
        for at in range(2):
            commit_together(members.shares(at), [members.write(at, 0)])
        members.put(1)
        sink, folder = members.sinks[1], members.folders[1]
        assert sink.commit(2, len(rows_of(2)), "digest 2", stage(sink, folder, 2)) is Outcome.APPENDED
        members.assert_seen(2, 3)

    def test_of_a_step_that_one_sink_refuses_nothing_is_there(self, members: Members) -> None:
        members.open()
        members.put(0)
        first, gap = members.write(0, 1), members.write(1, 2)
        with pytest.raises(DataError, match=r"\[SINK_GAP\]"):
            commit_together(members.shares(0), [first, gap])
        members.assert_seen(1, 1)
        assert members.put(1) == [Outcome.APPENDED] * 2

    def test_a_step_that_all_hold_is_compared_and_dropped(self, members: Members) -> None:
        members.open()
        members.put(0)
        members.put(1)
        assert members.put(0) == members.put(1) == [Outcome.DROPPED] * 2
        with pytest.raises(DivergedError, match=r"\[DIVERGED\]"):
            commit_together(members.shares(0), [members.write(0, 1), members.write(1, 1, digest="other")])
        members.assert_seen(2, 2)

    @pytest.mark.parametrize("taken", [0, 1])
    def test_a_newer_owner_of_one_sink_fences_an_act_on_all(self, members: Members, tmp_path: Path, taken: int) -> None:
        members.open()
        members.put(0)
        late = [members.write(at, 1) for at in range(2)]
        newer = Members(self.case, tmp_path / "place")
        newer.sinks[taken].open(newer.context(NAMES[taken], 2))
        with pytest.raises(FencedError, match=r"\[FENCED\]"):
            commit_together(members.shares(0), late)
        members.assert_seen(1, 1)
        newer.close()

    def test_two_owners_of_all_do_not_wait_for_each_other(self, members: Members, tmp_path: Path) -> None:
        """One opens the sinks in any order while the other writes to all of them in one order."""
        members.open()
        newer, over = Members(self.case, tmp_path / "place"), threading.Event()
        errors = list[BaseException]()

        def older() -> None:
            step = 0
            try:
                while not over.is_set():
                    members.put(step)
                    step += 1
            except BoatliftError as error:
                errors.append(error)

        thread = threading.Thread(target=older)
        thread.start()
        held = newer.sinks[1].open(newer.context(NAMES[1], 2)), newer.sinks[0].open(newer.context(NAMES[0], 2))
        over.set()
        thread.join()
        assert all(isinstance(error, FencedError) for error in errors), errors
        steps = {-1 if each is None else each.step for each in held}
        assert steps == {each.step if each is not None else -1 for each in newer.open(3)}
        assert len(steps) == 1, "no sink is ahead"
        newer.close()

    def test_an_act_carries_a_note_once(self, members: Members) -> None:
        members.open()
        keeps = members.sinks[0].capabilities.keeps_note
        assert keeps is not None
        keeps.note(NOTE)
        members.put(0)
        members.close()
        members.open(2)
        kept = [sink.capabilities.keeps_note for sink in members.sinks]
        assert [list(each.notes()) for each in kept if each is not None] == [[NOTE], []]

    @pytest.mark.crash
    def test_killed_at_any_line_of_an_act_all_of_it_is_there_or_nothing(self, tmp_path: Path) -> None:
        folder, point, seen = tmp_path / "place", 0, {1: 0, 2: 0}
        while True:
            first = Members(self.case, folder)
            first.open()
            first.put(0)
            first.close()
            child = Child(put_traced, self.case, folder, 2, 1, point=point)
            answer = child.answer()
            if answer is not None:
                break
            assert child.was_killed
            successor = Members(self.case, folder)
            held = successor.open(3)
            steps = {each.step + 1 for each in held if each is not None}
            assert len(held) == 2
            assert len(steps) == 1, f"one sink is ahead at line {point}: {held}"
            (many,) = steps
            successor.assert_seen(many, many)
            keeps = successor.sinks[0].capabilities.keeps_note
            assert keeps is not None
            assert list(keeps.notes()) == ([NOTE] if many == 2 else []), f"at line {point}"
            seen[many] += 1
            assert successor.put(1) == [Outcome.DROPPED if many == 2 else Outcome.APPENDED] * 2
            assert successor.put(2) == [Outcome.APPENDED] * 2
            successor.assert_seen(3, 3)
            successor.close()
            for each in successor.folders:
                self.case.remove(each)
            point += self.stride
        assert min(seen.values()) > 0 or self.stride > 1, f"points before and after the act: {seen}"
        assert seen[1] > 0

    @pytest.mark.crash
    def test_killed_at_any_line_of_an_open_the_next_owner_holds_every_step_and_fences_the_first(
        self, tmp_path: Path
    ) -> None:
        folder, point, ended = tmp_path / "place", 0, False
        while not ended:
            first, successor = Members(self.case, folder), Members(self.case, folder)
            first.open()
            first.put(0)
            child = Child(open_traced, self.case, folder, 2, point=point)
            ended = child.answer() is not None
            assert ended or child.was_killed
            held = [successor.sinks[1].open(successor.context(NAMES[1], 3))]
            with pytest.raises(FencedError, match=r"\[FENCED\]"):
                first.put(1)
            held.append(successor.sinks[0].open(successor.context(NAMES[0], 3)))
            assert held == [Committed(0, len(rows_of(0)), "digest 0")] * 2, f"at line {point}"
            assert successor.put(1) == [Outcome.APPENDED] * 2, f"at line {point}"
            successor.assert_seen(2, 2)
            for each in (first, successor):
                each.close()
            for name in successor.folders:
                self.case.remove(name)
            point += 3 * self.stride
        assert point > 3 * self.stride
