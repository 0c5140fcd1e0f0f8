"""Two programs, compared: a change is passed on to all that is downstream, and to nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boatlift.dataflow.evolution import Mode, ProgramChange, columns_of, compare
from boatlift.errors import InvalidError

Programs = dict[str, Any]


def operator(*reads: str, plan: str = "p", schema: str = "struct<a:int>", kind: str = "aggregate") -> dict[str, Any]:
    return {"kind": kind, "reads": list(reads), "plan": plan, "schema": schema, "options": {"keys": ["a"]}}


def program(**changed: Any) -> Programs:
    """A source, two operators one after the other and one beside them, and a sink for each of the last two."""
    return {
        "source rows": {"kind": "files"},
        "processor clean": operator("rows"),
        "processor sums": operator("clean"),
        "processor beside": operator("rows"),
        "sink totals": {"reads": "sums", "key": ["a"]},
        "sink others": {"reads": "beside", "key": []},
        **changed,
    }


def changes(old: Programs, new: Programs, **modes: str) -> dict[str, str]:
    compared = compare(old, new, modes).processors.values()
    return {each.name: each.change.value for each in compared if each.change is not ProgramChange.UNCHANGED}


def test_a_program_is_unchanged_to_itself() -> None:
    assert not compare(program(), program(), {}).is_changed


def test_a_change_is_passed_on_to_what_is_downstream_alone() -> None:
    new = program(**{"processor clean": operator("rows", plan="q")})
    assert changes(program(), new) == {
        "clean": "changed", "sums": "downstream of a change", "totals": "downstream of a change"
    }  # fmt: skip


@pytest.mark.parametrize("mode", ["carry", "same", "now"])
def test_what_is_kept_as_it_is_changes_nothing_downstream(mode: str) -> None:
    new = program(**{"processor clean": operator("rows", plan="q")})
    assert changes(program(), new, clean=mode) == {"clean": "changed"}


def test_what_comes_and_what_goes() -> None:
    new = program(**{"sink more": {"reads": "sums", "key": []}})
    assert changes(program(), new) == {"more": "added"}
    assert changes(new, program()) == {"more": "removed"}


def test_a_source_that_changes_moves_all_that_reads_it() -> None:
    new = program(**{"source rows": {"kind": "files", "header": False}})
    assert changes(program(), new) == {
        "rows": "changed", **dict.fromkeys(("clean", "sums", "beside", "totals", "others"), "downstream of a change")
    }  # fmt: skip


def test_all_is_computed_anew_by_request() -> None:
    compared = compare(program(), program(), {"all": "fill"}).processors
    assert {name for name, each in compared.items() if each.mode is Mode.FILL} == compared.keys() - {"rows"}


EDGES = st.lists(st.integers(0, 30), min_size=1, max_size=8)


@given(EDGES, st.data())
def test_exactly_what_can_be_reached_from_a_change_changes(draws: list[int], data: st.DataObject) -> None:
    old: Programs = {"source s": {}}
    names = ["s"]
    for number, draw in enumerate(draws):
        reads = sorted({names[draw % len(names)], names[(draw // 3) % len(names)]})
        old[f"processor n{number}"] = operator(*reads)
        names.append(f"n{number}")
    changed = data.draw(st.sampled_from(names[1:]))
    new = {**old, f"processor {changed}": operator(*old[f"processor {changed}"]["reads"], plan="other")}
    reached = {changed}
    for name in names[1:]:
        if reached & set(old[f"processor {name}"]["reads"]):
            reached.add(name)
    assert changes(old, new).keys() == reached


def test_the_id_covers_both_programs_and_the_modes() -> None:
    new = program(**{"processor clean": operator("rows", plan="q")})
    other = program(**{"processor clean": operator("rows", plan="r")})
    first = compare(program(), new, {}).id
    assert first == compare(program(), dict(new), {"clean": "fill"}).id
    assert len({first, compare(program(), other, {}).id, compare(new, other, {}).id}) == 3
    assert compare(program(), new, {"totals": "now"}).id != first


def test_differences_are_reported_in_words() -> None:
    now = operator("rows", schema="struct<a:int,b:array<struct<c:int,d:string>>>", plan="q")
    now["options"] = {"keys": ["a", "b"]}
    (clean, *_) = (
        each for each in compare(program(), program(**{"processor clean": now}), {}).processors.values()
        if each.name == "clean"
    )  # fmt: skip
    assert set(clean.differences) == {
        "its expressions", "columns: +b array<struct<c:int,d:string>>", "keys: a → a, b"
    }  # fmt: skip


def test_columns_of_nested_types() -> None:
    assert columns_of("struct<a:decimal(10,2),b:struct<c:int,d:map<int,string>>,e:int>") == {
        "a": "decimal(10,2)", "b": "struct<c:int,d:map<int,string>>", "e": "int"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ({"claen": "fill"}, "claen, which is no processor: there are rows, clean"),
        ({"clean": "anew"}, "choose one of fill, replay, carry"),
        ({"totals": "carry"}, "totals is a sink: choose of fill, new_rows, now"),
        ({"clean": "new_rows"}, "clean is an operator: choose of fill, replay, carry, same, now"),
        ({"rows": "now"}, "the source rows: a mode is of an operator or a sink"),
        ({"more": "carry"}, "more is added: it has no past"),
    ],
)
def test_a_mode_that_there_is_not_is_refused(modes: dict[str, str], words: str) -> None:
    new = program(**{"processor more": operator("rows"), "processor clean": operator("rows", plan="q")})
    with pytest.raises(InvalidError) as refused:
        compare(program(), new, modes)
    assert refused.value.condition == "BAD_OPTION"
    assert words in refused.value.message


def test_a_source_that_sorts_out_bad_rows_is_the_same_source() -> None:
    sorts = {"kind": "files", "bad_rows": "dead_letters", "max_line_bytes": 9}
    new: Programs = {
        "source rows_source": sorts,
        "processor rows": operator("rows_source", kind="bad_rows"),
        **{entry: about for entry, about in program().items() if entry != "source rows"},
        "processor bad": operator("rows_source", kind="bad_rows"),
        "sink bad_out": {"reads": "bad", "key": []},
    }
    compared = compare(program(), new, {})
    assert changes(program(), new) == {"bad": "added", "bad_out": "added"}
    assert compared.sources == {"rows_source": "rows"}
    other = {**new, "source rows_source": {**sorts, "header": False}}
    assert "clean" in changes(program(), other)


def with_layout(layout: str, plan: str = "p") -> Programs:
    return program(**{"processor sums": {**operator("clean", plan=plan), "layout": layout}})


def test_another_layout_concerns_nothing_downstream() -> None:
    assert changes(with_layout("a"), with_layout("b")) == {"sums": "unchanged, with a state of another form"}
    compared = compare(with_layout("a"), with_layout("b"), {}).processors["sums"]
    assert (compared.mode, compared.moves) == (Mode.RELAYOUT, False)
    assert changes(program(), with_layout("b")) == {}  # a store of before says nothing of it


def test_without_a_clean_stop_another_layout_is_a_change() -> None:
    compared = compare(with_layout("a"), with_layout("b"), {}, stopped=False).processors
    assert (compared["sums"].mode, compared["totals"].change) == (Mode.FILL, ProgramChange.DOWNSTREAM)


@pytest.mark.parametrize(("asked", "mode"), [("same", Mode.RELAYOUT), ("carry", Mode.CARRY), ("fill", Mode.FILL)])
def test_a_state_of_another_form_is_never_taken_as_it_is(asked: str, mode: Mode) -> None:
    """`carry` is refused by the plan (`tests/runtime/test_transition.py`)."""
    compared = compare(with_layout("a"), with_layout("b", plan="q"), {"sums": asked}).processors["sums"]
    assert (compared.change, compared.mode) == (ProgramChange.CHANGED, mode)


def test_a_state_of_another_form_is_not_carried_over() -> None:
    with pytest.raises(InvalidError, match="has another form now: leave it out"):
        compare(with_layout("a"), with_layout("b"), {"sums": "carry"})


@pytest.mark.parametrize("asked", ["now", "same"])
def test_what_only_has_another_layout_may_begin_anew(asked: str) -> None:
    compared = compare(with_layout("a"), with_layout("b"), {"sums": asked}).processors["sums"]
    assert compared.mode is (Mode.NOW if asked == "now" else Mode.RELAYOUT)
