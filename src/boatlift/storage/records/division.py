"""The division of a program into units at a claim: recorded with the program, but no part of its identity.

The entry `UNITS` of a recorded program has the operators, edges and policy of each unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.decoders import look_up

UNITS = "units"


class UnitRecord(msgspec.Struct, frozen=True):
    """A unit.

    Attributes:
        operators: Its operators; none for a source that is staged unchanged.
        inputs: Edge to the sending source or unit.
        outputs: Edge to the sink that the unit stages rows for.
        policy: The name and options of its policy.
    """

    operators: tuple[str, ...]
    inputs: dict[str, str]
    outputs: dict[str, str]
    policy: dict[str, Any]


look_up(UnitRecord)


def units_in(program: Mapping[str, Any]) -> dict[str, UnitRecord]:
    """Return the units of a recorded program by name.

    Raises:
        ValidationError: an entry is no unit.
    """
    return msgspec.convert(program.get(UNITS, {}), dict[str, UnitRecord])


def without_units(program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a recorded program."""
    return {key: about for key, about in program.items() if key != UNITS}


def edges_of(units: Mapping[str, UnitRecord]) -> set[str]:
    """Return the names of all edges of some units."""
    return {edge for unit in units.values() for edge in (*unit.inputs, *unit.outputs)}
