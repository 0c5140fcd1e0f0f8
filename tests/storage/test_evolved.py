"""A transition in the log: before its record nothing has changed, after it the log is of the new program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from boatlift.storage.records.codec import Header, decode_group, encode_group
from boatlift.storage.records.facts import Checkpoint, Determinant, GarbageCollection, LoggedMessage, StepDigest
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import (
    Claim,
    Cursor,
    Evolved,
    Override,
    Record,
    SinkCommit,
    SinkNumbers,
    Snapshot,
    Stopped,
)
from boatlift.storage.records.well_formed import fault_of

RUN = {"name": "runs/a", "first": 0, "last": 4, "modulus": 1, "residue": 0, "rows": 1, "size": 9, "digest": "0" * 32}
PAYLOAD = {"runs": [RUN], "rows": 1, "digest": "0" * 16}


def unit(name: str, *reads: str, sinks: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "operators": [name],
        "inputs": {f"{read}->{name}": read for read in reads},
        "outputs": {f"{name}->{sink}": sink for sink in sinks},
        "policy": {"name": "Lazy", "every": 20, "seconds": None, "in_flight": "behind"},
    }


OLD = {"version": 1, "units": {"a": unit("a", "s", sinks=["x"]), "b": unit("b", "a", sinks=["y"])}}
NEW = {"version": 2, "units": {"a": unit("a", "r", sinks=["x", "z"]), "b": unit("b", "a", sinks=["y"])}}
CHANGE = Evolved(
    "0123abcd",
    NEW,
    ("b", "y"),
    ("s->a", "a->b", "b->y"),
    {"s": "r"},
    (
        GarbageCollection({"b": (4,)}, {}, {"b->y": (4,)}),
        Checkpoint("b", (4,), PAYLOAD),
        Determinant("t", 4, None, None),
    ),
    {"t": (4, {"n": 0})},
    {"y": 4, "z": 4},
    {"y": SinkNumbers(-1, PAYLOAD, 4), "z": SinkNumbers(4, None, 4)},
)


def claim(program: dict[str, Any], evolves: str = "", python: str = "3.11") -> Claim:
    return Claim("here", 1, 0, program, {"python": python}, evolves=evolves)


BEFORE: list[Record] = [
    claim(OLD),
    *(Determinant("s", time, None, {"position": {}, "clock": 0, "seed": 0}) for time in range(5)),
    Checkpoint("a", (3,), PAYLOAD),
    Checkpoint("b", (2,), PAYLOAD),
    StepDigest("a", 4, "d"),
    LoggedMessage("a->b", 3, PAYLOAD),
    SinkCommit("x", 4),
    SinkCommit("y", 3),
    Cursor("s", 2, {"n": 3}, ("f",)),
    Override("skipped", "b", 1, "so"),
    Override("accepted", "a", 1, "so"),
    Stopped(),
]


def test_a_claim_of_a_transition_changes_nothing_by_itself() -> None:
    history, before = LogHistory.of(BEFORE), LogHistory.of(BEFORE)
    history.apply(claim(NEW, "0123abcd"))
    assert history.snapshot() == before.snapshot()
    history.apply(claim(NEW, "0123abcd", python="3.12"))
    assert (history.stopped, history.environment) == (True, {"python": "3.11"})
    history.apply(claim(OLD))  # the old program goes on
    assert (history.program, history.stopped, history.resumed) == (OLD, False, True)


def test_the_record_makes_the_log_one_of_the_new_program() -> None:
    history = LogHistory.of([*BEFORE, claim(NEW, "0123abcd"), CHANGE])
    live = history.live_records
    assert history.program == NEW
    assert (history.stopped, history.resumed) == (False, True)
    assert live.states.keys() == {"a", "b"}
    assert list(live.states["a"]) == [(3,)]
    assert list(live.states["b"]) == [(4,)]
    assert live.results.keys() == {"a"}
    assert live.sent == {}
    assert live.determinants.keys() == {"r", "t"}
    assert history.committed == {"x": 4, "y": 4, "z": 4}
    assert history.names.keys() == {"r"}
    assert history.cursors == {"r": (2, {"n": 3}), "t": (4, {"n": 0})}
    assert history.decisions.keys() == {("accepted", "a", 1)}
    assert (history.own_number("x"), history.own_number("y"), history.own_number("z")) == (4, 5, 0)


def test_a_difference_stays_until_its_sink_holds_it() -> None:
    history = LogHistory.of([*BEFORE, claim(NEW, "0123abcd"), CHANGE])
    assert [*history.differences()] == [PAYLOAD]
    history.apply(Checkpoint("b", (5,), None))
    history.apply(GarbageCollection({"b": (5,), "a": (5,)}, {}, {}))
    history.apply(Checkpoint("a", (5,), None))
    history.apply(GarbageCollection({"b": (5,), "a": (5,)}, {}, {}))
    history.apply(SinkCommit("y", 3))
    assert history.live_runs() == {"runs/a"}
    history.apply(SinkCommit("y", 4))
    assert [*history.differences()] == []
    assert history.live_runs() == set()
    assert history.numbers["y"].ahead == -1


@pytest.mark.parametrize("place", range(len(BEFORE) + 3))
def test_a_manifest_at_any_place_means_the_same(place: int) -> None:
    records = [*BEFORE, claim(NEW, "0123abcd"), CHANGE, SinkCommit("y", 4)]
    whole = LogHistory.of(records)
    first = LogHistory.of(records[:place])
    second = LogHistory()
    if first.program:
        second.apply(first.snapshot())
    else:
        second = first
    for record in records[place:]:
        second.apply(record)
    assert second.snapshot() == whole.snapshot()


def test_it_comes_back_from_disk_as_it_was() -> None:
    snapshot = LogHistory.of([*BEFORE, claim(NEW, "0123abcd"), CHANGE]).snapshot()
    for record in (CHANGE, claim(NEW, "0123abcd"), snapshot):
        assert fault_of(record) is None
        content = encode_group(Header("flow", 7, 7, 0, b"", 0), [record])
        assert decode_group(content, "log/7")[1] == (record,)
    assert isinstance(snapshot, Snapshot)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("forgotten", ("no name!",)),
        ("edges", ("a b",)),
        ("renamed", {"s": "no name!"}),
        ("program", {"units": {"a": 1}}),
        ("sinks", {"y": SinkNumbers(0, {"runs": [1]}, 0)}),
        ("facts", (Checkpoint("no name!", (1,), None),)),
        ("committed", {"no name!": 1}),
    ],
)
def test_a_record_that_boatlift_never_writes_is_found(field: str, value: Any) -> None:
    import msgspec

    assert fault_of(msgspec.structs.replace(CHANGE, **{field: value})) is not None
