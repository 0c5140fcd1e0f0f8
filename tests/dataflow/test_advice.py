"""A method of Spark's DataFrames on a stream is answered with the code to write; the object changes in nothing else."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import boatlift as bl
from boatlift.api.dataflow import Dataflow
from boatlift.api.grouped import Grouped
from boatlift.api.streams import Stream
from boatlift.dataflow import plan
from boatlift.dataflow.advice import OF_DATAFLOW, OF_GROUPED, OF_STREAM
from support.any_connector import ANY


def made() -> tuple[Dataflow, Stream, Grouped]:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    return flow, rows, rows.group_by("origin", "dest")


@pytest.mark.parametrize("name", OF_STREAM)
def test_what_a_stream_lacks_is_answered_with_what_to_write(name: str) -> None:
    _, rows, _ = made()
    with pytest.raises(bl.InvalidError, match=rf"\[NOT_ON_A_STREAM\] a Stream has no {name}: "):
        getattr(rows, name)
    assert not hasattr(rows, name)


@pytest.mark.parametrize("name", OF_GROUPED)
def test_a_grouped_stream_answers_with_its_own_names(name: str) -> None:
    _, _, grouped = made()
    with pytest.raises(
        bl.InvalidError, match=rf"\[NOT_ON_A_STREAM\] a Grouped has no {name}: .*rows.*\"origin\", \"dest\""
    ):
        getattr(grouped, name)
    assert not hasattr(grouped, name)


@pytest.mark.parametrize("name", OF_DATAFLOW)
def test_what_a_dataflow_lacks_is_answered_with_what_to_write(name: str) -> None:
    flow, _, _ = made()
    with pytest.raises(bl.InvalidError, match=rf"\[NOT_ON_A_STREAM\] a Dataflow has no {name}: "):
        getattr(flow, name)


def test_no_advice_replaces_a_given_answer() -> None:
    for table, kind in ((OF_STREAM, Stream), (OF_GROUPED, Grouped), (OF_DATAFLOW, Dataflow)):
        assert not [name for name in table if name in dir(kind)]


def test_a_name_with_a_typing_error_is_a_plain_attribute_error_with_one_like_it() -> None:
    flow, rows, grouped = made()
    for owner, wrong, right in ((rows, "trasnform", "transform"), (grouped, "aggg", "agg"), (flow, "sorce", "source")):
        with pytest.raises(AttributeError, match=f"no attribute '{wrong}': is {right} meant") as caught:
            getattr(owner, wrong)
        assert not isinstance(caught.value, bl.BoatliftError)
    with pytest.raises(AttributeError, match=r"is filter meant\? a Stream has no filter either: write"):
        _ = rows.filterr  # type: ignore[attr-defined]


def test_copies_pickles_and_tools_see_an_ordinary_object() -> None:
    _, rows, grouped = made()
    assert copy.copy(rows) == rows
    assert copy.deepcopy(grouped).keys == grouped.keys
    pickled = pickle.loads(pickle.dumps(Grouped(Stream(Dataflow("other"), "rows"), ("k",))))
    assert pickled.keys == ("k",)
    for owner in (rows, grouped):
        for name in ("__len__", "__wrapped__", "_repr_latex_", "_ipython_display_", "__array__", "shape"):
            assert not hasattr(owner, name)
        assert inspect.unwrap(owner) is owner  # type: ignore[arg-type]
        assert "NOT_ON_A_STREAM" not in repr(inspect.getmembers(owner))
    with pytest.raises(AttributeError, match="no attribute 'keys'"):  # as while a copy is made
        _ = object.__new__(Grouped).keys


def test_the_error_survives_as_a_pickle() -> None:
    _, rows, _ = made()
    with pytest.raises(bl.InvalidError) as caught:
        _ = rows.groupBy  # type: ignore[attr-defined]
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again)) == (type(caught.value), str(caught.value))


def joins_closure(flow: Dataflow) -> Any:
    other = flow.source("planes", ANY)
    return lambda df: [df.join(each, "k") for each in (other,)]


def joins_grouped(flow: Dataflow) -> Any:
    other = flow.source("planes", ANY).group_by("k")
    return lambda df: df.join(other, "k")


planes: Stream | None = None


def joins_global(flow: Dataflow) -> Any:
    global planes
    planes = flow.source("planes", ANY)
    return lambda df: [df.join(planes, "k") for _ in range(1)]


@pytest.mark.parametrize("joining", [joins_closure, joins_grouped, joins_global])
def test_a_stream_inside_a_function_is_answered_with_lookup_and_union(joining: Any) -> None:
    flow, rows, _ = made()
    rows.transform("clean", joining(flow)).sink("out", ANY)
    with pytest.raises(
        bl.InvalidError, match=r"\[NOT_ON_A_STREAM\] the function of clean uses the stream planes"
    ) as caught:
        plan(flow)
    assert 'rows.lookup("name", newest=planes.group_by("k")' in caught.value.message
    assert 'rows.union("name", planes)' in caught.value.message


def test_columns_and_methods_of_a_streams_name_are_no_streams() -> None:
    global planes
    flow, rows, _ = made()
    planes = rows
    rows.transform("clean", lambda df: df.planes.where(df["planes"])).sink("out", ANY)
    assert plan(flow).units
    planes = None


def test_a_stream_is_no_dataframe() -> None:
    _, rows, _ = made()
    with pytest.raises(
        bl.InvalidError, match=r"\[NOT_ON_A_STREAM\] rows is a Stream, used where Spark takes a DataFrame"
    ):
        _ = rows._jdf  # type: ignore[attr-defined]


def test_a_list_of_keys_is_answered_with_the_keys() -> None:
    _, rows, _ = made()
    with pytest.raises(bl.InvalidError, match=r'\[NOT_ON_A_STREAM\].*write `rows.group_by\("a", "b"\)`'):
        rows.group_by(["a", "b"])  # type: ignore[arg-type]
