"""The picture of a recorded program: its sources, units and sinks, and where each is drawn. Pure.

A unit is one box, since it is what recovery restores; its sinks are rows of that box. The picture depends on the
program alone, so nothing in it moves while the dataflow runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from boatlift.dataflow import Lazy
from boatlift.dataflow.identity import ProcessorRecord, processors_of
from boatlift.dataflow.processors import describe_policy
from boatlift.errors import InvalidError
from boatlift.recovery import Kind
from boatlift.runtime.graph import LOCAL_OPTIONS, policy_of, recorded_program
from boatlift.runtime.inspect.layout import layout
from boatlift.storage.records.records import UnitRecord, units_in

MOST_UNITS = 80
"""A picture of more units is drawn around one of them alone."""

NEIGHBOURS = 2  # a picture around a unit has those that are so many edges away

WIDTH, HEIGHT, SINK_HEIGHT, SOURCE_WIDTH, SOURCE_HEIGHT = 208.0, 88.0, 24.0, 168.0, 66.0


class SourceBox(msgspec.Struct, frozen=True):
    """A source.

    Attributes:
        connector: Its kind, such as `kafka`.
        options: What the program records of it; no path and no secret.
    """

    name: str
    connector: str
    options: Mapping[str, Any]


class UnitBox(msgspec.Struct, frozen=True):
    """A unit.

    Attributes:
        executes: Its processors, in order.
        operators: The kind of each.
        reads, looks_up: The sources and units whose rows it takes, and those that are tables of its lookups.
        policy: As Python code, with the options that a program records.
        unrecorded: The other options of the policy, which the run alone knows.
        order: In which order it takes the steps of its inputs: `epochs`, `arrival order` or `batch`.
        sinks: Those that it stages rows for.
    """

    name: str
    executes: list[str]
    operators: list[str]
    reads: list[str]
    looks_up: list[str]
    policy: str
    unrecorded: list[str]
    order: str
    keeps_state: bool
    sinks: list[str]


class SinkRow(msgspec.Struct, frozen=True):
    """A sink, in the box of its unit."""

    unit: str
    key: list[str]
    exactly_once: bool


class DrawnBox(msgspec.Struct, frozen=True):
    """Where a source or a unit is drawn."""

    name: str
    x: float
    y: float
    width: float
    height: float


class DrawnEdge(msgspec.Struct, frozen=True):
    """An edge, with the points that it goes through."""

    sender: str
    reader: str
    table: bool
    way: list[tuple[float, float]]


class Picture(msgspec.Struct, frozen=True):
    """A program, in topological order.

    Attributes:
        around: The unit that it is drawn around; empty if all is drawn.
        boxes, edges: What is drawn; nothing if there are more than `MOST_UNITS` units, and it is around none.
    """

    sources: list[SourceBox]
    units: list[UnitBox]
    sinks: Mapping[str, SinkRow]
    around: str
    width: float
    height: float
    boxes: list[DrawnBox]
    edges: list[DrawnEdge]


def picture_of(program: Mapping[str, Any], around: str = "") -> Picture:
    """Return the picture of a recorded program.

    Args:
        around: A source or a unit: draw only what is near it. Empty: draw all.

    Raises:
        InvalidError: `[BAD_OPTION]` there is no such source or unit.
        DataError: `[CORRUPT]` what is recorded is no program.
    """
    graph = recorded_program(program).graph
    recorded, processors = units_in(program), processors_of(program)
    order = [name for name in graph.order if graph.vertices[name].kind is not Kind.SINK]
    if around and around not in order:
        raise InvalidError("BAD_OPTION", f"the program has no source or unit {around}: choose from {', '.join(order)}")
    units = [_unit(name, recorded[name], processors) for name in order if name in recorded]
    edges = {(sender, unit.name): sender in unit.looks_up for unit in units for sender in (*unit.reads, *unit.looks_up)}
    drawn = set(order)
    if around:
        drawn = _near(around, edges)
    elif len(units) > MOST_UNITS:
        drawn = set()
    heights = {unit.name: HEIGHT + SINK_HEIGHT * len(unit.sinks) for unit in units}
    sizes = {
        name: (WIDTH, heights[name]) if name in heights else (SOURCE_WIDTH, SOURCE_HEIGHT)
        for name in order
        if name in drawn
    }
    placed = layout(sizes, [edge for edge in edges if drawn.issuperset(edge)])
    return Picture(
        sources=[_source(name, program[f"source {name}"]) for name in order if name not in recorded],
        units=units,
        sinks={
            sink: SinkRow(
                unit.name, program[f"sink {sink}"].get("key", []), program[f"sink {sink}"].get("account", True)
            )
            for unit in units
            for sink in unit.sinks
        },
        around=around,
        width=placed.width,
        height=placed.height,
        boxes=[DrawnBox(name, *placed.places[name], *sizes[name]) for name in sizes],
        edges=[DrawnEdge(*edge, edges[edge], placed.ways[edge]) for edge in placed.ways],
    )


def _source(name: str, described: Mapping[str, Any]) -> SourceBox:
    connector = str(described.get("kind", "source"))
    return SourceBox(name, connector, {key: value for key, value in described.items() if key != "kind"})


def _unit(name: str, unit: UnitRecord, processors: Mapping[str, ProcessorRecord]) -> UnitBox:
    operators = [processors[each] for each in unit.operators]
    tables = {table for each in operators if each.kind == "lookup" for table in each.reads[1:]}
    timings = {each.timing for each in operators}
    inputs, policy = list(unit.inputs.values()), policy_of(unit)
    return UnitBox(
        name,
        list(unit.operators) or [name],
        [each.kind for each in operators],
        [each for each in inputs if each not in tables],
        [each for each in inputs if each in tables],
        describe_policy(policy),
        list(LOCAL_OPTIONS) if isinstance(policy, Lazy) else [],
        next((each for each in ("batch", "gathered", "arrival order") if each in timings), "epochs"),
        any(each.keeps_state for each in operators),
        list(unit.outputs.values()),
    )


def _near(name: str, edges: Collection[tuple[str, str]]) -> set[str]:
    found = {name}
    for _ in range(NEIGHBOURS):
        found |= {end for edge in edges if found & set(edge) for end in edge}
    return found
