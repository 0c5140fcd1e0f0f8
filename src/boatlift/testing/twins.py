"""A dataflow with twins in the place of its sinks, and with bounds on its sources: what a crash test runs.

The first process of a crash test determines the bounds and keeps them, so that all runs read the same. Nothing of the
user's is written: a sink or a source without a stand-in is refused by its name.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import Delivery, HeldRow, Json, Sink, SinkTwin, Source
from boatlift.errors import InvalidError

__all__ = ["bounds_of", "row_text", "twinned", "write_held"]

_PARQUET = "zstd"


def bounds_of(plan: Plan, folder: Path, steps: int | None, given: Mapping[str, Path]) -> dict[str, Json]:
    """Determine the bounds of each source.

    Args:
        folder: A folder for links and copies of input.
        steps: The most steps of a source; None for all that is there.
        given: Source to the folder that is read in its place; the source "" stands for the only one.

    Raises:
        InvalidError: `[NO_TWIN]` a source has no bounds; `[BAD_OPTION]` there is no such source.
    """
    named = _of_sources(plan, given)
    bounds = {}
    for name, spec in plan.sources.items():
        bounded = spec.source.capabilities.bounded
        if bounded is None:
            raise InvalidError("NO_TWIN", f"source {name} {_unbounded(spec.source)}")
        own = folder / name
        own.mkdir(parents=True)
        try:
            bounds[name] = bounded.bounds(own, steps, named.get(name))
        except InvalidError as error:
            if error.condition != "NO_TWIN":
                raise
            raise InvalidError("NO_TWIN", f"source {name} {error.message}") from error
    return bounds


def _unbounded(source: Source) -> str:
    if source.capabilities.period is not None:
        return "follows the clock, which no two runs share: test the dataflow without what the clock drives"
    return f"({source.describe()['kind']}) cannot be read again and again: put bl.files of recorded rows in its place"


def _of_sources(plan: Plan, given: Mapping[str, Path]) -> dict[str, Path]:
    if "" in given and len(plan.sources) > 1:
        names = ", ".join(plan.sources)
        raise InvalidError("BAD_OPTION", f"--input {given['']} is for one of {names}: write --input NAME=FOLDER")
    named = {name or next(iter(plan.sources)): folder for name, folder in given.items()}
    for name in named.keys() - plan.sources.keys():
        known = ", ".join(plan.sources)
        raise InvalidError("BAD_OPTION", f"--input {name}={named[name]} names no source: choose one of {known}")
    return named


def twinned(
    plan: Plan, folder: Path, bounds: Mapping[str, Json], in_parquet: Iterable[str]
) -> tuple[Plan, dict[str, SinkTwin]]:
    """Return a plan whose sinks are twins below a folder, and whose sources are within bounds; and the twins.

    Args:
        in_parquet: The sinks whose rows a Parquet sink takes, whatever they are. What is left of a group of sinks that
            are shown together is still shown together.

    Raises:
        InvalidError: `[NO_TWIN]` a sink has none; `[BAD_OPTION]` there is no such sink.
    """
    replaced = tuple(in_parquet)
    for name in set(replaced) - plan.sinks.keys():
        known = ", ".join(plan.sinks)
        raise InvalidError("BAD_OPTION", f"--in-parquet {name} names no sink: choose one of {known}")
    twins = {
        name: _in_parquet(spec.sink, folder, name) if name in replaced else _twin_of(spec.sink, folder, name)
        for name, spec in plan.sinks.items()
    }
    sinks = {name: replace(spec, sink=twins[name].sink) for name, spec in plan.sinks.items()}
    sources = {}
    for name, source in plan.sources.items():
        bounded = source.source.capabilities.bounded
        assert bounded is not None, f"{name} has bounds"
        sources[name] = replace(source, source=bounded.within(bounds[name]))
    units = {
        name: replace(unit, sinks=tuple(sinks[sink.name] for sink in unit.sinks)) for name, unit in plan.units.items()
    }
    processors = {**plan.processors, **sources, **sinks}
    left = (tuple(name for name in group if name not in replaced) for group in plan.groups)
    groups = tuple(group for group in left if len(group) > 1)
    return replace(
        plan, sources=sources, sinks=sinks, units=units, processors=processors, groups=groups, determinants={}
    ), twins


def _twin_of(sink: Sink, folder: Path, name: str) -> SinkTwin:
    makes = sink.capabilities.twin
    if makes is None:
        kind = sink.describe()["kind"]
        raise InvalidError(
            "NO_TWIN",
            f"sink {name} ({kind}) has no twin, and a crash test writes to no place of yours: --in-parquet {name} "
            "has a Parquet sink take its rows, which tests the dataflow without that sink",
        )
    return makes(folder, name)


def _in_parquet(sink: Sink, folder: Path, name: str) -> SinkTwin:
    stand_in = ParquetSink(folder / "unused", sink.key, _PARQUET, gathers=sink.capabilities.gathers)
    return _twin_of(stand_in, folder, name)


def write_held(twins: Mapping[str, SinkTwin], folder: Path) -> None:
    """Write what each twin holds to a file of its own, one row a line, behind a line about the sink."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, twin in twins.items():
        sink = twin.sink
        about = {"key": sink.key and list(sink.key), "again": sink.delivery is Delivery.AT_LEAST_ONCE}
        with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as file:
            file.write(f"{json.dumps(about)}\n")
            file.writelines(f"{json.dumps(line)}\n" for line in _lines(twin.held()))


def _lines(rows: Iterable[HeldRow]) -> Iterator[tuple[int, tuple[str, str] | None, str]]:
    for row in rows:
        yield row.weight, row.delivered, row_text(row.values)


def row_text(values: Mapping[str, Any]) -> str:
    """Return the text of a row: two rows have one text if all values are the same, floats to the last bit.

    Examples:
        >>> row_text({"k": "a", "v": -0.0})
        '{"k": "a", "v": -0.0}'
    """
    return json.dumps(dict(values), default=_text, ensure_ascii=False)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return f"base64:{base64.b64encode(value).decode()}"
    return str(value)
