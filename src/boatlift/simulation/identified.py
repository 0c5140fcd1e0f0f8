"""Sinks whose receivers recognise rows, behind paths on which a row depends on its input alone."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from boatlift.simulation.processors import Nodes
from boatlift.simulation.recipes import Recipe, Role

SHARE = 0.5  # the share of programs with such sinks, where there can be any

Row = tuple[tuple[str, ...], int]
"""An item of a source, by the edges on its way to a sink, from the last to the first."""


def row_wise_sinks(recipe: Recipe) -> frozenset[str]:
    """Return the sinks without a ledger whose rows are the same in whatever steps they come.

    A source that keeps no rows, an order of arrival, a batch, a loop, a state, a choice, and what depends on the number
    of a step exclude a path.
    """

    def passes(name: str) -> bool:
        part = recipe.parts[name]
        role = part.role in {Role.SOURCE, Role.STRUCTURED, Role.GATHERED}
        plain = role and part.deterministic and not (part.keeps or part.swallows)
        return plain and all(passes(wire.source) for wire in recipe.inputs(name))

    sinks = [name for name, part in recipe.parts.items() if part.role is Role.SINK and not part.ledger]
    return frozenset(name for name in sinks if all(passes(wire.source) for wire in recipe.inputs(name)))


def with_identified_rows(recipe: Recipe, rng: random.Random) -> Recipe:
    """Return the same program in which the receivers of such sinks may recognise rows."""
    return replace(recipe, identified=row_wise_sinks(recipe)) if rng.random() < SHARE else recipe


def rows_in(nodes: Nodes, effect: Iterable[tuple[str, Any, str]]) -> set[Row]:
    """Return the rows of some messages."""
    found: set[Row] = set()
    for edge, _, digest in effect:
        node = nodes[digest]
        if node.inputs:
            found |= {((edge, *path), item) for path, item in rows_in(nodes, node.inputs)}
        else:
            found |= {((edge,), item) for item in range(*node.determinant)}
    return found


def all_rows(recipe: Recipe, items: dict[str, int], name: str) -> set[Row]:
    """Return all rows that come to a processor, of sources with so many items."""
    found: set[Row] = set()
    for wire in recipe.inputs(name):
        own = {((), item) for item in range(items.get(wire.source, 0))} | all_rows(recipe, items, wire.source)
        found |= {((wire.name, *path), item) for path, item in own}
    return found
