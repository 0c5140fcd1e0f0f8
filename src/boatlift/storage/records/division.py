"""How a program was divided into units at a claim: recorded with the program, and no part of its identity.

The entry `UNITS` of a recorded program has, for each unit, its operators, its edges and its policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from boatlift.decoders import look_up

__all__ = ["UNITS", "UnitRecord", "edges_of", "units_in", "without_units"]

UNITS = "units"


class UnitRecord(msgspec.Struct, frozen=True):
    """A unit.

    Attributes:
        operators: Its operators; none of a source that is staged as it is.
        inputs: Edge to the source or unit that it comes from.
        outputs: Edge to the sink whose rows the unit stages.
        policy: The name of its policy, and the policy's options.
    """

    operators: tuple[str, ...]
    inputs: dict[str, str]
    outputs: dict[str, str]
    policy: dict[str, Any]


look_up(UnitRecord)


def units_in(program: Mapping[str, Any]) -> dict[str, UnitRecord]:
    """Return the units of a recorded program by name.

    Raises:
        ValidationError: an entry is no unit's.
    """
    return msgspec.convert(program.get(UNITS, {}), dict[str, UnitRecord])


def without_units(program: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a recorded program."""
    return {key: about for key, about in program.items() if key != UNITS}


def edges_of(units: Mapping[str, UnitRecord]) -> set[str]:
    """Return the names of all edges of units."""
    return {edge for unit in units.values() for edge in (*unit.inputs, *unit.outputs)}
