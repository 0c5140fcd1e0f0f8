"""Reading the graph out of a program's identity, as a store has recorded it: without the program, and without Spark.

`spark/program.py` writes the identity. It knows sources, units and sinks; transforms that are fused into a unit have
no name in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from boatlift.dataflow import Batch, Eager, Ephemeral, Lazy, Policy
from boatlift.errors import DataError, InternalError, InvalidError
from boatlift.recovery import Kind
from boatlift.runtime.graph import GraphNode, program_from
from boatlift.runtime.machine import Program
from boatlift.storage.records.damage import RESTORE

__all__ = ["recorded_program"]


def recorded_program(identity: Mapping[str, Any]) -> Program:
    """Return sources, units and sinks as the machine takes them; an empty program if nothing was ever claimed.

    Raises:
        DataError: `[CORRUPT]` what was recorded is no program.
    """
    try:
        return program_from([_node(key, about) for key, about in identity.items()])
    except (AttributeError, KeyError, TypeError, ValueError, InternalError, InvalidError) as error:
        raise DataError(
            "CORRUPT", f"the log's newest claim records what is no program ({error!r}): {RESTORE}"
        ) from error


def _node(key: str, about: Mapping[str, Any]) -> GraphNode:
    what, _, name = key.partition(" ")
    if what == "source":
        return GraphNode(name, (), Kind.SOURCE, repeats=not about.get("forgets", False))
    if what == "sink":
        return GraphNode(name, (about["reads"],), Kind.SINK)
    tables = about.get("tables", {})
    union = about.get("union", {})
    reads = (about["reads"], *union.get("others", ()), *(table["reads"] for table in tables.values()))
    in_turn = bool(tables) or union.get("as_they_come", False)
    batch = "batch" in about
    keeps = bool(about["keys"] or tables)
    repeats = about.get("repeats", True)
    policy: Policy = Batch() if batch else Lazy() if keeps else Ephemeral() if repeats else Eager()
    return GraphNode(name, reads, Kind.STATEFUL if keeps else Kind.STATELESS, policy, in_turn, batch, repeats)
