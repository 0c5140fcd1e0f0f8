"""A wrapped connector is the same connector to everything that plans and runs the program."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import boatlift as bl
import boatlift.dataflow.contracts as contracts
from boatlift.api.dataflow import Dataflow
from boatlift.connectors.kit import SinkWrapper, SourceWrapper
from boatlift.dataflow import Plan, Sink, Source, SourceCapabilities, plan
from boatlift.runtime.graph import program_of
from boatlift.testing.crash import Tracer, with_crashing_sinks
from connectors.cases import (
    CsvCase,
    GeneratorCase,
    ParquetFilesCase,
    PushCase,
)
from connectors.sink_cases import ParquetCase, PostgresAppendCase, PostgresCase, SqliteCase, SqliteNanCase
from support.engine.memory_engine import identity_in_memory

SINKS: dict[str, Callable[[Path], Sink]] = {
    "parquet": ParquetCase.make,
    "parquet with a key": ParquetCase.make_with_another_key,
    "sqlite": SqliteCase.make,
    "sqlite with NaN as text": SqliteNanCase.make,
    "postgres": PostgresCase.make,
    "postgres without a key": PostgresAppendCase.make,
    "mysql": lambda folder: bl.mysql("mysql://boatlift@db/shop", table="t", key=["k"]),
    "mysql without a key": lambda folder: bl.mysql("mysql://boatlift@db/shop", table="t"),
    "kafka": lambda folder: bl.kafka.sink("localhost:1", "topic"),
    "kafka with two writers": lambda folder: bl.kafka.sink("localhost:1", "topic", writers=2),
    "kafka upserts": lambda folder: bl.kafka.sink("localhost:1", "topic", key="k", rows="upsert", writers=3),
}

SOURCES: dict[str, Callable[[Path], Source]] = {
    "csv": CsvCase.make,
    "parquet": ParquetFilesCase.make,
    "generator": GeneratorCase.make,
    "push": PushCase.make,
    "push that answers when stable": lambda folder: bl.push("id LONG, text STRING", ack="stable"),
    "kafka": lambda folder: bl.kafka.source("localhost:1", topic="t", format="json", schema="id LONG, text STRING"),
}


def planned(source: Source, sink: Sink) -> Plan:
    flow = Dataflow("flow")
    rows = flow.source("rows", source)
    rows.transform("clean", lambda df: df).sink("out", sink)
    return plan(flow)


def assert_same_program(wrapped: Plan, bare: Plan) -> None:
    assert wrapped.keeps_no_rows("rows") == bare.keeps_no_rows("rows")
    assert identity_in_memory(wrapped) == identity_in_memory(bare)
    assert program_of(wrapped).graph.vertices == program_of(bare).graph.vertices
    mine, theirs = wrapped.sources["rows"].source, bare.sources["rows"].source
    assert replace(mine.capabilities, bad_rows=None) == replace(theirs.capabilities, bad_rows=None)
    assert (mine.capabilities.bad_rows is None) == (theirs.capabilities.bad_rows is None), "it is wrapped itself"
    assert (mine.delivery, mine.positioned) == (theirs.delivery, theirs.positioned)
    out, other = wrapped.sinks["out"].sink, bare.sinks["out"].sink
    own = {"takes_back": None, "shares_transaction": None}
    assert replace(out.capabilities, **own) == replace(other.capabilities, **own)
    assert (out.capabilities.takes_back is None) == (other.capabilities.takes_back is None), "it is wrapped itself"
    assert (out.delivery, out.key, out.describe()) == (other.delivery, other.key, other.describe())


@pytest.mark.parametrize("make", SINKS.values(), ids=SINKS)
def test_a_sink_with_crash_points_is_planned_as_the_bare_one(make: Callable[[Path], Sink], tmp_path: Path) -> None:
    bare = planned(bl.push("k LONG", ack="stable"), make(tmp_path))
    assert_same_program(with_crashing_sinks(bare, Tracer()), bare)


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
def test_a_wrapped_source_is_planned_as_the_bare_one(make: Callable[[Path], Source], tmp_path: Path) -> None:
    CsvCase.add(tmp_path, 0)
    source, sink = make(tmp_path), ParquetCase.make(tmp_path / "out")
    assert_same_program(planned(SourceWrapper(source), sink), planned(source, sink))


def test_a_wrapped_source_takes_pushes_and_is_one_source_still() -> None:
    source = bl.push("k LONG")
    flow = Dataflow("flow")
    flow.source("rows", SourceWrapper(source)).sink("out", bl.parquet("out"))
    with pytest.raises(bl.UnavailableError, match="NOT_RUNNING"):
        flow.pushed("rows", "key")
    with pytest.raises(bl.InvalidError, match="source under another name already"):
        flow.source("others", source)


@pytest.mark.parametrize(("wrapper", "protocol"), [(SinkWrapper, Sink), (SourceWrapper, Source)])
def test_a_wrapper_hands_on_every_member_of_the_contract(wrapper: type, protocol: type) -> None:
    members = {name for name in vars(protocol) if not name.startswith("_")}
    assert len(members) > 8
    other = SimpleNamespace(
        **{name: object() for name in members - {"capabilities"}}, capabilities=SourceCapabilities()
    )
    for each in (wrapper(other), copy(wrapper(other))):
        assert all(getattr(each, name) is getattr(other, name) for name in members)
        assert not hasattr(each, "another")


def test_no_protocol_of_the_contracts_can_be_asked_for_by_isinstance() -> None:
    protocols = [each for _, each in inspect.getmembers(contracts, inspect.isclass) if getattr(each, "_is_protocol", 0)]
    assert len(protocols) > 9
    for protocol in protocols:
        with pytest.raises(TypeError):
            isinstance(object(), protocol)
