"""Laws of the comparison of two programs, over programs that are drawn."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from boatlift.dataflow.evolution import (
    KEPT_MODES,
    OF_OPERATORS,
    OF_SINKS,
    Comparison,
    Mode,
    ProgramChange,
    columns_of,
    compare,
)
from boatlift.errors import InvalidError

Programs = dict[str, Any]


def operator(*reads: str, **fields: Any) -> dict[str, Any]:
    plain = {"kind": "aggregate", "plan": "p", "schema": "struct<a:int>", "options": {"keys": ["a"], "many": 3}}
    return {**plain, "reads": list(reads), **fields}


@st.composite
def programs(draw: st.DrawFn) -> Programs:
    """Sources, operators that read one or two of what is before them, and sinks."""
    count = draw(st.integers(1, 2))
    program: Programs = {f"source s{number}": {"kind": "files"} for number in range(count)}
    names = [f"s{number}" for number in range(count)]
    for number in range(draw(st.integers(1, 6))):
        reads = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
        program[f"processor n{number}"] = operator(*reads)
        names.append(f"n{number}")
    for number in range(draw(st.integers(1, 3))):
        program[f"sink x{number}"] = {"reads": draw(st.sampled_from(names)), "key": []}
    return program


def name_of(entry: str) -> str:
    return entry.partition(" ")[2]


def entries(program: Programs, kind: str) -> list[str]:
    return [entry for entry in program if entry.startswith(kind)]


def reads_of(about: Any) -> list[str]:
    reads = about.get("reads", [])
    return [reads] if isinstance(reads, str) else reads


def with_other_code(program: Programs, changed: list[str]) -> Programs:
    return {entry: {**about, "plan": "q"} if entry in changed else about for entry, about in program.items()}


def changes(compared: Comparison) -> dict[str, ProgramChange]:
    return {
        name: each.change for name, each in compared.processors.items() if each.change is not ProgramChange.UNCHANGED
    }


@given(programs())
def test_an_identical_program_is_unchanged_and_has_nothing_to_do(program: Programs) -> None:
    compared = compare(program, {entry: dict(about) for entry, about in program.items()}, {})
    assert not compared.is_changed
    assert list(compared.processors) == list(map(name_of, program))
    assert {each.mode for each in compared.processors.values()} == {None}
    assert not any(each.moves or each.differences for each in compared.processors.values())


@given(programs(), st.data())
def test_a_change_reaches_all_behind_it_up_to_what_is_kept_and_nothing_else(old: Programs, data: st.DataObject) -> None:
    """By a reference that follows the edges: what moves is what changes, or reads what moves, and is not kept."""
    operators = entries(old, "processor")
    changed = data.draw(st.lists(st.sampled_from(operators), min_size=1, unique=True))
    kept_modes = st.sampled_from(sorted(each.value for each in KEPT_MODES))
    kept = data.draw(st.dictionaries(st.sampled_from([*map(name_of, operators)]), kept_modes))
    expected: dict[str, ProgramChange] = {}
    moves: set[str] = set()
    for entry, about in old.items():
        name = name_of(entry)
        if entry in changed:
            expected[name] = ProgramChange.CHANGED
        elif moves & set(reads_of(about)):
            expected[name] = ProgramChange.DOWNSTREAM
        if name in expected and name not in kept and entry in operators:
            moves.add(name)
    compared = compare(old, with_other_code(old, changed), kept)
    assert changes(compared) == expected
    assert {name for name, each in compared.processors.items() if each.moves} == moves
    for name in expected:
        assert compared.processors[name].mode is Mode(kept.get(name, "fill"))


@given(programs(), st.data())
def test_what_is_added_and_what_is_removed_mirror_each_other(program: Programs, data: st.DataObject) -> None:
    """Sinks that nothing reads: the rest stays."""
    some = data.draw(st.lists(st.sampled_from(entries(program, "sink")), min_size=1, unique=True))
    less = {entry: about for entry, about in program.items() if entry not in some}
    names = [name_of(entry) for entry in program if entry in some]
    added, removed = compare(less, program, {}), compare(program, less, {})
    assert changes(added) == dict.fromkeys(names, ProgramChange.ADDED)
    assert changes(removed) == dict.fromkeys(names, ProgramChange.REMOVED)
    assert list(removed.processors)[-len(names) :] == names
    assert added.named(ProgramChange.ADDED) == removed.named(ProgramChange.REMOVED) == names
    assert {removed.processors[name].mode for name in names} == {None}
    assert {added.processors[name].mode for name in names} == {Mode.FILL}


@given(programs(), st.data())
def test_the_id_does_not_depend_on_the_order_of_fields_and_modes(old: Programs, data: st.DataObject) -> None:
    changed = data.draw(st.sampled_from(entries(old, "processor")))
    new = with_other_code(old, [changed])
    modes = {name_of(changed): "same", name_of(entries(old, "sink")[0]): "now"}

    def reordered(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {key: reordered(value[key]) for key in reversed(value)}

    shuffled = [{entry: reordered(about) for entry, about in program.items()} for program in (old, new)]
    assert compare(*shuffled, reordered(modes)).id == compare(old, new, modes).id


@given(programs(), st.data())
def test_each_choice_of_modes_has_an_id_of_its_own(old: Programs, data: st.DataObject) -> None:
    changed = data.draw(st.sampled_from(entries(old, "processor")))
    name, new = name_of(changed), with_other_code(old, [changed])
    chosen = {mode: compare(old, new, {name: mode.value}) for mode in OF_OPERATORS}
    assert len({each.id for each in chosen.values()}) == len(OF_OPERATORS)
    assert all(len(each.id) == 8 and int(each.id, 16) >= 0 for each in chosen.values())
    assert compare(old, new, {}).id == chosen[Mode.FILL].id
    unconcerned = [
        name_of(each) for each in entries(old, "processor") if name_of(each) not in changes(chosen[Mode.NOW])
    ]
    for other in unconcerned:  # a mode that brings nothing about is no part of the plan
        assert compare(old, new, {name: "now", other: "carry"}).id == chosen[Mode.NOW].id


@given(programs(), st.data())
def test_the_id_distinguishes_every_two_programs(program: Programs, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.sampled_from(entries(program, "processor")), min_size=1, unique=True))
    versions = [program, with_other_code(program, some), with_other_code(program, [*program])]
    assume(len({repr(each) for each in versions}) == 3)
    ids = [compare(old, new, {}).id for old, new in itertools.product(versions, repeat=2)]
    assert len(set(ids)) == len(ids)


@given(programs(), st.data())
def test_all_means_each_name_that_can_have_the_mode(old: Programs, data: st.DataObject) -> None:
    new = with_other_code(old, data.draw(st.lists(st.sampled_from(entries(old, "processor")), unique=True)))
    mode = data.draw(st.sampled_from(Mode))
    each = {name_of(entry): mode.value for entry in entries(new, "processor") if mode in OF_OPERATORS}
    each |= {name_of(entry): mode.value for entry in entries(new, "sink") if mode in OF_SINKS}
    assert compare(old, new, {"all": mode.value}) == compare(old, new, each)


@given(programs())
def test_all_by_request_leaves_only_sources_as_they_are(program: Programs) -> None:
    compared = compare(program, program, {"all": "fill"}).processors
    for entry in program:
        each = compared[name_of(entry)]
        if entry.startswith("source"):
            assert (each.change, each.mode) == (ProgramChange.UNCHANGED, None)
        else:
            assert each.mode is Mode.FILL
            assert each.change in (ProgramChange.CHANGED, ProgramChange.DOWNSTREAM)


ONE: Programs = {
    "source rows": {"kind": "files"},
    "processor sums": operator("rows"),
    "sink totals": {"reads": "sums", "key": ["a"]},
}


def test_a_name_counts_more_than_all() -> None:
    compared = compare(ONE, with_other_code(ONE, ["processor sums"]), {"all": "fill", "sums": "now"}).processors
    assert compared["sums"].mode is Mode.NOW
    assert compared["totals"].mode is Mode.FILL


@pytest.mark.parametrize("mode", ["carry", "same"])
def test_all_passes_over_what_is_added_which_has_nothing_to_carry(mode: str) -> None:
    """`all` names every processor that can have the mode."""
    new = with_other_code({**ONE, "processor more": operator("rows")}, ["processor sums"])
    compared = compare(ONE, {**new, "sink out": {"reads": "more", "key": []}}, {"all": mode}).processors
    assert compared["sums"].mode is Mode(mode)
    assert (compared["more"].mode, compared["out"].mode) == (Mode.FILL, Mode.FILL)


@pytest.mark.parametrize("mode", ["fill", "now"])
def test_what_is_added_can_be_filled_or_begin_now(mode: str) -> None:
    new = {**ONE, "processor more": operator("rows"), "sink out": {"reads": "more", "key": []}}
    compared = compare(ONE, new, {"more": mode}).processors
    assert (compared["more"].mode, compared["more"].moves) == (Mode(mode), mode == "fill")


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *((name, "anew") for name in ("rows", "sums", "totals", "all", "nobody")),
        *(("rows", mode.value) for mode in Mode),
        *(("sums", mode.value) for mode in Mode if mode not in OF_OPERATORS),
        *(("totals", mode.value) for mode in Mode if mode not in OF_SINKS),
        ("nobody", "fill"),
        ("", "fill"),
    ],
)
def test_a_mode_that_fits_nothing_is_refused_even_if_nothing_changes(name: str, mode: str) -> None:
    for new in (ONE, with_other_code(ONE, ["processor sums"])):
        with pytest.raises(InvalidError) as refused:
            compare(ONE, new, {name: mode})
        assert refused.value.condition == "BAD_OPTION"
        assert name in refused.value.message


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        ({"plan": "p"}, {"plan": "q"}, "its expressions"),
        ({"code": "c"}, {"code": "d"}, "its code"),
        ({"state": {"s": {"n": "int"}}}, {"state": {"s": {"n": "int", "m": "int"}}}, "the columns of its state"),
        ({"schema": "struct<a:int>"}, {"schema": "struct<a:int,x:bigint>"}, "columns: +x bigint"),
        ({"schema": "struct<a:int,y:int>"}, {"schema": "struct<a:int>"}, "columns: −y"),
        ({"schema": "struct<a:int>"}, {"schema": "struct<a:bigint>"}, "columns: a int → bigint"),
        ({"schema": "struct<a:int,b:int>"}, {"schema": "struct<b:int,a:int>"}, "columns: another order"),
        (
            {"schema": "struct<y:int,z:int>"},
            {"schema": "struct<z:array<int>,x:map<int,int>>"},
            "columns: +x map<int,int>, −y, z int → array<int>",
        ),
        ({"options": {"limit": 3}}, {"options": {"limit": 5}}, "limit: 3 → 5"),
        ({"options": {}}, {"options": {"limit": 5}}, "limit: none → 5"),
        ({"options": {"limit": 5}}, {"options": {}}, "limit: 5 → none"),
        ({"options": {"keys": ["a"]}}, {"options": {"keys": ["a", "b"]}}, "keys: a → a, b"),
        ({"kind": "top_n"}, {"kind": "aggregate"}, "kind: top_n → aggregate"),
        ({"reads": ["rows"]}, {"reads": ["rows", "other"]}, "reads: rows → rows, other"),
    ],
)
def test_each_difference_is_reported_in_words(before: dict[str, Any], now: dict[str, Any], words: str) -> None:
    old, new = (
        {"source rows": {}, "source other": {}, "processor sums": operator("rows", **fields)}
        for fields in (before, now)
    )
    assert compare(old, new, {}).processors["sums"].differences == (words,)


def test_all_differences_are_reported_those_of_the_old_entry_first() -> None:
    now = operator("rows", plan="q", options={"keys": ["b"], "fresh": True})
    compared = compare(ONE, {**ONE, "processor sums": now}, {}).processors
    assert compared["sums"].differences == ("its expressions", "keys: a → b", "many: 3 → none", "fresh: none → True")
    assert compared["totals"].differences == ("sums",)


def test_a_list_from_disk_is_the_tuple_that_was_recorded() -> None:
    new = {**ONE, "processor sums": {**operator("rows"), "reads": ("rows",), "options": {"keys": ("a",), "many": 3}}}
    assert not compare(ONE, new, {}).is_changed


KINDS = st.recursive(
    st.sampled_from(["int", "bigint", "string", "decimal(10,2)"]),
    lambda inner: st.one_of(
        inner.map("array<{}>".format),
        st.tuples(inner, inner).map(lambda both: f"map<{both[0]},{both[1]}>"),
        st.tuples(inner, inner).map(lambda both: f"struct<c:{both[0]},d:{both[1]}>"),
    ),
    max_leaves=6,
)


@given(st.dictionaries(st.text("abcdxyz_ ", min_size=1, max_size=5), KINDS, max_size=5))
def test_columns_of_any_types_are_found_again_in_their_order(columns: dict[str, str]) -> None:
    schema = f"struct<{','.join(f'{name}:{kind}' for name, kind in columns.items())}>"
    assert list(columns_of(schema).items()) == list(columns.items())


def test_no_schema_has_no_columns() -> None:
    assert columns_of("") == columns_of("struct<>") == {}
