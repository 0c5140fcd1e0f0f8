"""Processors with other names in the log: the same meaning under new names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.facts import (
    Checkpoint,
    Determinant,
    Fact,
    GarbageCollection,
    LoggedInput,
    LoggedMessage,
    LoopEnd,
    StepDigest,
)
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.manifest_objects import NamesObjectSize
from boatlift.storage.records.records import (
    Claim,
    Cursor,
    Evolved,
    Override,
    Record,
    RestorePoint,
    SinkCommit,
    SinkNumbers,
    Snapshot,
)
from boatlift.storage.records.renaming import Renaming
from support.worlds.facts import CLAIM, Unsynced, sequences
from support.worlds.logs import manifest_of

UNIT = {"operators": ["a"], "inputs": {"s->a": "s"}, "outputs": {"a->z": "z"}, "policy": {"name": "Lazy"}}
PROGRAM: dict[str, Any] = {
    "source s": {},
    "processor a": {"reads": ["s"], "kind": "aggregate"},
    "processor u": {"reads": ["o", "s"], "options": {"with": ["s"]}},
    "processor l": {"reads": ["o"], "options": {"tables": {"s": {"reads": "a", "keys": ["k"]}}}},
    "processor m": {"reads": ["o"], "options": {"loop": {"a": "k INT"}, "keys": ["s"]}},
    "sink z": {"reads": "a", "key": []},
    "units": {"a": UNIT, "s:rows": {**UNIT, "operators": [], "inputs": {"s->s:rows": "s"}}},
}
WAS = {"t": "s", "b": "a", "y": "z"}
RENAMED: dict[str, Any] = {
    "source t": {},
    "processor b": {"reads": ["t"], "kind": "aggregate"},
    "processor u": {"reads": ["o", "t"], "options": {"with": ["t"]}},
    "processor l": {"reads": ["o"], "options": {"tables": {"s": {"reads": "b", "keys": ["k"]}}}},
    "processor m": {"reads": ["o"], "options": {"loop": {"b": "k INT"}, "keys": ["s"]}},
    "sink y": {"reads": "b", "key": []},
    "units": {
        "b": {**UNIT, "operators": ["b"], "inputs": {"t->b": "t"}, "outputs": {"b->y": "y"}},
        "t:rows": {**UNIT, "operators": [], "inputs": {"t->t:rows": "t"}, "outputs": {"b->y": "y"}},
    },
}


def change(was: dict[str, str], program: dict[str, Any]) -> Evolved:
    return Evolved("0123abcd", program, (), (), {}, (), {}, {}, {}, was=was)


def claim(program: dict[str, Any]) -> Claim:
    return Claim("host", 1, 0, program, {})


def test_a_program_has_the_new_names_wherever_it_had_the_old_ones() -> None:
    assert Renaming({old: new for new, old in WAS.items()}).program(PROGRAM) == RENAMED


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Determinant("a", ("s->a", 3), "s->a", {"of": "a"}), Determinant("b", ("t->b", 3), "t->b", {"of": "a"})),
        (Determinant("s", 3, None, None), Determinant("t", 3, None, None)),
        (StepDigest("a", 3, "d"), StepDigest("b", 3, "d")),
        (LoopEnd("a", (1, 2)), LoopEnd("b", (1, 2))),
        (LoggedMessage("a->z", 3, {}), LoggedMessage("b->y", 3, {})),
        (Checkpoint("a", (("s->a", 3),), {}), Checkpoint("b", (("t->b", 3),), {})),
        (
            LoggedInput("a", 1, (("s->a", 1),), (("s->a", 1, {}),), None),
            LoggedInput("b", 1, (("t->b", 1),), (("t->b", 1, {}),), None),
        ),
        (
            GarbageCollection({"a": (("u->a", 1),)}, {"s": (2,)}, {"a->z": (1,)}),
            GarbageCollection({"b": (("u->b", 1),)}, {"t": (2,)}, {"b->y": (1,)}),
        ),
    ],
)
def test_each_kind_of_fact_has_the_new_names(before: Fact, after: Fact) -> None:
    assert Renaming({old: new for new, old in WAS.items()}).facts([before]) == [after]


@given(sequences(), st.permutations(["a", "b", "c", "d"]))
def test_what_is_renamed_and_renamed_back_means_what_it_meant(records: list[Record], names: list[str]) -> None:
    was = dict(zip(names, ["a", "b", "c", "d"], strict=True))
    history = LogHistory.of(records, "flow")
    back = history.renamed(was).renamed({old: new for new, old in was.items()})
    assert _unordered(back.snapshot()) == _unordered(history.snapshot())


def _unordered(snapshot: Snapshot) -> tuple[Any, ...]:
    facts = sorted(map(repr, (each for each in snapshot.facts if not isinstance(each, GarbageCollection))))
    merged = [each for each in snapshot.facts if isinstance(each, GarbageCollection)]
    return snapshot.cursors, snapshot.committed, snapshot.tainted, snapshot.numbers, facts, merged


@given(sequences())
def test_a_transition_renames_as_its_plan_does(records: list[Record]) -> None:
    was = {"x": "a", "sums2": "sums"}
    planned = LogHistory.of(records, "flow").renamed(was)
    done = LogHistory.of([*records, change(was, planned.program)], "flow")
    assert _unordered(done.snapshot()) == _unordered(planned.snapshot())
    assert LogHistory.of([done.snapshot()], "flow").snapshot() == done.snapshot()


def test_decisions_commits_cursors_and_points_follow() -> None:
    numbers = SinkNumbers(3, None, 4)
    before: list[Record] = [
        claim(PROGRAM),
        Determinant("s", 0, None, None),
        Cursor("s", 0, {"taken": 1}),
        Override("skipped", "a", 4, "bad", (("s->a", 4),)),
        SinkCommit("z", 7),
        Evolved("0123abcd", PROGRAM, (), (), {}, (), {}, {}, {"z": numbers}, ("a",)),
        RestorePoint("noon", 5),
    ]
    history = LogHistory.of([*before, change(WAS, RENAMED)])
    for meant in (history, history.at("noon", {})):
        assert meant.program == RENAMED
        assert meant.cursors == {"t": (0, {"taken": 1})}
        assert meant.committed == {"y": 7}
        assert meant.decided("skipped") == {("b", 4)}
        assert next(iter(meant.decisions.values())).messages == (("t->b", 4),)
        assert meant.numbers == {"y": numbers}
        assert meant.last_closed("t") == 0
        assert set(meant.live_records.determinants) == {"t"}
    assert history.tainted == frozenset()
    assert history.at("noon", {}).tainted == {"b"}


def test_a_place_knows_its_sink_by_the_first_name() -> None:
    third = {**RENAMED, "sink x": RENAMED["sink y"]}
    del third["sink y"]
    history = LogHistory.of([claim(PROGRAM), change(WAS, RENAMED), change({"x": "y"}, third)])
    assert history.places == {"x": "z"}
    history.apply(change({}, {**third, "sink z": third["sink x"]}))
    assert history.places == {"x": "z"}, "its place still knows it so"
    history.apply(change({}, PROGRAM))
    assert history.places == {}, "another sink has that name, and its place"


def test_a_restore_point_goes_once_a_sink_comes_back_by_any_name_of_its_place() -> None:
    """The sink may have another place: its numbers of steps in the point are those of the former one."""
    gone = {entry: each for entry, each in RENAMED.items() if entry != "sink y"}
    for name in ("y", "z"):
        history = LogHistory.of([claim(PROGRAM), change(WAS, RENAMED), RestorePoint("noon", 5), change({}, gone)])
        assert (list(history.points), history.places) == (["noon"], {"y": "z"})
        history.apply(change({}, {**gone, f"sink {name}": RENAMED["sink y"]}))
        assert (list(history.points), history.places) == ([], {"y": "z"} if name == "y" else {})


def test_a_receiver_is_known_by_all_names_of_its_place() -> None:
    history = LogHistory.of([claim(PROGRAM), SinkCommit("z", 7), change(WAS, RENAMED), SinkCommit("other", 3)])
    assert history.names_of_place("z") == {"y", "z"}
    assert history.names_of_place("other") == {"other"}


def test_a_restore_point_knows_where_a_sink_is() -> None:
    """Also of a sink that is gone, and comes back under another name."""
    gone = {entry: each for entry, each in PROGRAM.items() if entry != "sink z"}
    history = LogHistory.of([claim(PROGRAM), RestorePoint("noon", 5), change({}, gone)])
    back = history.renamed(WAS)
    assert back.places == back.at("noon", {}).places == {"y": "z"}


def test_names_in_objects_are_those_of_the_renamed_source(tmp_path: Path) -> None:
    store = LocalStore.open(tmp_path / "store", create=True, filesystem=Unsynced())
    log = Log.open(store, "flow", names_an_object=NamesObjectSize(2, 2))
    log.claim(claim(PROGRAM))
    taken = [f"{number}.csv" for number in range(9)]
    log.append([Cursor("s", 0, {}, tuple(taken)), RestorePoint("noon", 5)])
    manifest_of(log)
    log.append([change(WAS, RENAMED)])
    for again in (log, Log.open(store, "flow")):
        assert again.names_taken("t") == taken
        assert again.names_before("t", 9).count == 9
        assert again.objects_of_names()


def test_a_point_of_a_program_that_had_the_new_name_goes() -> None:
    """The new name was another processor's then."""
    both = {**PROGRAM, "processor b": PROGRAM["processor a"]}
    history = LogHistory.of([claim(both), RestorePoint("noon", 5), change({}, PROGRAM), RestorePoint("later", 6)])
    history.apply(change(WAS, RENAMED))
    assert list(history.points) == ["later"]


def test_a_renamed_processor_takes_the_number_of_one_that_has_gone() -> None:
    """A receiver may know steps of a sink that has gone: its numbers must not count for another one."""
    history = LogHistory.of([CLAIM, SinkCommit("y", 9), SinkCommit("z", 2)])
    history.given.update({"y": 9, "z": 2})
    assert history.renamed({"y": "z"}).given == {"y": 2}
