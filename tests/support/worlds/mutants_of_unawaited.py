"""Deliberate faults of sinks that wait for no log."""

from __future__ import annotations

from typing import Any

from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.release import Releases
from support.worlds.mutant import Mutant

_carry, _orders = DurableFacts.carry, Releases.orders


def _whatever_is_before_it(self: Any, sink: Any) -> Any:
    """Treat all sinks without a ledger alike, in a program with one whose receiver recognises rows."""
    if self._unawaited and not sink.vertex.ledger:
        self._unawaited |= {sink.name}
    return _orders(self, sink)


def _unless_it_waits_for_nothing(self: Any, *, rides: bool) -> None:
    if not rides:
        _carry(self, rides=rides)


MUTANTS_OF_UNAWAITED = {
    "unawaited-order": Mutant(
        "a sink waits for nothing though its rows depend on steps", {(Releases, "orders"): _whatever_is_before_it}
    ),
    "unawaited-undone": Mutant(
        "a recovery undoes what was shown ahead of the log", {(DurableFacts, "carry"): _unless_it_waits_for_nothing}
    ),
}
