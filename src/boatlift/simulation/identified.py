"""Sinks whose receivers recognise rows, behind paths on which a row depends on its input alone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from boatlift.simulation.processors import Nodes
from boatlift.simulation.recipes import Recipe, Role

SHARE = 0.5  # the share of programs with such sinks, where there can be any

Row = tuple[tuple[str, ...], int]
"""An item of a source, by the edges on its way to a sink, from the last to the first."""

Content = tuple[tuple[int | None, str | None], ...]
"""What of a row its identity does not say: the choice and the state of each processor on its way."""


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


def rows_in(nodes: Nodes, effect: Iterable[tuple[str, Any, str]]) -> dict[Row, Content]:
    """Return the rows of some messages.

    Raises:
        AssertionError: one is there twice, with two contents.
    """
    found: dict[Row, Content] = {}
    for edge, _, digest in effect:
        node = nodes[digest]
        if node.inputs:
            here = (node.determinant, node.state)
            rows = {((edge, *path), n): (here, *known) for (path, n), known in rows_in(nodes, node.inputs).items()}
        else:
            rows = {((edge,), item): () for item in range(*node.determinant)}
        add_rows(found, rows)
    return found


def add_rows(known: dict[Row, Content], rows: Mapping[Row, Content]) -> None:
    """Add rows to those that a receiver knows.

    Raises:
        AssertionError: it knows one of them with another content.
    """
    for row, content in rows.items():
        if known.setdefault(row, content) != content:
            raise AssertionError(f"{row} came as {known[row]}, and comes as {content}")


def all_rows(recipe: Recipe, items: Mapping[str, int], name: str) -> dict[Row, Content]:
    """Return all rows that come to a processor on row-wise paths, of sources with so many items."""
    found: dict[Row, Content] = {}
    for wire in recipe.inputs(name):
        if wire.source in items:
            found |= {((wire.name,), item): () for item in range(items[wire.source])}
        for (path, item), content in all_rows(recipe, items, wire.source).items():
            found[(wire.name, *path), item] = ((None, None), *content)
    return found
