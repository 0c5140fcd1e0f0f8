"""Names that a cursor holds: a value that grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.dataflow import Names
from boatlift.dataflow.contracts.values import names_in, with_names, without_names


@given(st.data())
def test_no_value_changes_when_others_are_made_of_it(data: st.DataObject) -> None:
    """Also where two values of different names are made of the same one."""
    alphabet = [f"{letter}{number}" for letter in "ab" for number in range(12)]
    made: list[tuple[Names, list[str]]] = [(Names(), [])]
    for _ in range(data.draw(st.integers(0, 12))):
        names, expected = data.draw(st.sampled_from(made))
        free = [name for name in alphabet if name not in expected]
        further = data.draw(st.lists(st.sampled_from(free), max_size=4, unique=True)) if free else []
        made.append((names.plus(further), expected + further))
    for names, expected in made:
        assert list(names) == expected
        assert len(names) == len(expected)
        assert {name for name in alphabet if name in names} == set(expected)
        assert names.others(alphabet) == [name for name in alphabet if name not in expected]
        assert names.after(2) == tuple(expected[2:])
        assert names == Names(expected)


def test_a_chain_of_values_shares_its_names() -> None:
    first = Names(["a"])
    second = first.plus(["b", "c"])
    assert first.plus(["b", "c"])._order is second._order is first._order


@pytest.mark.parametrize("further", [["a"], ["c", "c"], ["b"]])
def test_no_name_is_taken_twice(further: list[str]) -> None:
    names = Names(["a"]).plus(["b"])
    with pytest.raises(ValueError, match="twice"):
        names.plus(further)
    assert list(names) == ["a", "b"]


def test_a_cursor_is_json_and_names() -> None:
    start = {"taken": Names(), "digest": ""}
    cursor = {"taken": Names(["a", "b"]), "digest": "x"}
    assert names_in(cursor) == Names(["a", "b"])
    assert without_names(cursor) == {"digest": "x"}
    assert with_names(start, {"digest": "x"}, ["a", "b"]) == cursor
    assert with_names(start, {"digest": "x", "taken": ["a", "b"]}, []) == cursor, "as logs of format 3 have it"
    assert names_in({"next": 5}) is None
