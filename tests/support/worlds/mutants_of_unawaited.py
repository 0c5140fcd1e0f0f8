"""Deliberate faults of sinks that wait for no log."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from boatlift.runtime.machine.durable_facts import DurableFacts
from boatlift.runtime.machine.release import Releases
from boatlift.storage.group_commit import GroupCommit
from boatlift.storage.records.records import SinkCommit
from support.worlds.mutant import Mutant

_carry, _orders = DurableFacts.carry, Releases.orders
_submit, _take = GroupCommit.submit, GroupCommit.take


def _whatever_is_before_it(self: Any, sink: Any) -> Any:
    """Treat all sinks without a ledger alike, in a program with one whose receiver recognises rows."""
    if self._unawaited and not sink.vertex.ledger:
        self._unawaited |= {sink.name}
    return _orders(self, sink)


def _unless_it_waits_for_nothing(self: Any, *, rides: bool) -> None:
    if not rides:
        _carry(self, rides=rides)


def _is_account(records: Any) -> bool:
    return bool(records) and all(isinstance(record, SinkCommit) for record in records)


def _account_first(self: Any, records: Any, *others: Any) -> Any:
    """Let an account overtake all but accounts that waits for the log."""
    place = _submit(self, records, *others)
    if type(self) is GroupCommit and _is_account(records):
        at = sum(1 for _ in takewhile(lambda each: _is_account(each[0]), self.waiting))
        self.waiting.insert(at, self.waiting.pop())
        self._behind.insert(at, self._behind.pop())
    return place


def _accounts_alone(self: Any) -> Any:
    return [self.waiting.pop(0)] if _is_account(self.waiting[0][0]) else _take(self)


MUTANTS_OF_UNAWAITED = {
    "unawaited-order": Mutant(
        "a sink waits for nothing though its rows depend on steps", {(Releases, "orders"): _whatever_is_before_it}
    ),
    "unawaited-undone": Mutant(
        "a recovery undoes what was shown ahead of the log", {(DurableFacts, "carry"): _unless_it_waits_for_nothing}
    ),
    "unawaited-account": Mutant(
        "the account of a step is in the log before what the step rests on",
        {(GroupCommit, "submit"): _account_first, (GroupCommit, "take"): _accounts_alone},
    ),
}
