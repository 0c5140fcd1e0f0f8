"""Deliberate faults of what standbys hold (`runtime/peers/holding.py`)."""

from __future__ import annotations

from typing import Any

from boatlift.runtime.peers.holding import HeldTail, Holders, Promised
from boatlift.simulation import peers
from boatlift.simulation.driver import SimulatedDriver, carried_behind
from boatlift.simulation.peers import Peers
from boatlift.simulation.standbys import Standbys
from boatlift.simulation.world import Deliveries
from boatlift.storage.records.codec import decode_tail
from boatlift.storage.records.history import LogHistory
from boatlift.storage.records.records import Membership
from support.worlds.mutant import Mutant

__all__ = ["MUTANTS_OF_PEERS"]

_count, _change, _due, _missing = Holders.count, Holders.change, Holders.due, peers.missing
_gather, _start, _apply = Peers.gather, Standbys._start, LogHistory.apply
_place, _promise = Deliveries.place, HeldTail.promise


def _one_fewer(self: Any, depth: int) -> int:
    return int(_count(self, depth - 1) if depth > 1 else self._stored + len(self._entries))


def _one_promise_fewer(members: Any, promised: Any) -> Any:
    missing, absent = _missing(members, promised)
    return max(0, missing - 1), absent


def _in_memory_alone(self: Any) -> None:
    if (change := _change(self)) is not None:
        self._members = change.lives


def _behind_a_change(self: Any, depth: int) -> int:
    changing, self._changing = self._changing, None
    try:
        return int(_count(self, depth))
    finally:
        self._changing = changing


def _tail_alone(self: Any, token: int) -> Any:
    return Promised(token, self.life, tuple(self._entries))


def _peeked(self: Any, token: int, members: Any, own: Any, standbys: Any, meanwhile: Any, goes_on: Any) -> Any:
    tails = [*([] if own is None else [own]), *(each.tail for each in standbys)]
    before = {tail.life: tuple(tail._entries) for tail in tails}

    def promise(self: Any, token: int) -> Any:
        _promise(self, token)
        return Promised(token, self.life, before.get(self.life, ()))

    with Mutant("", {(HeldTail, "promise"): promise}).at_work():
        return _gather(self, token, members, own, standbys, meanwhile, goes_on)


def _of_one_member(self: Any, token: int, members: Any, own: Any, standbys: Any, meanwhile: Any, goes_on: Any) -> Any:
    tails = _gather(self, token, members, own, standbys, meanwhile, goes_on)
    one = [own, *(each.tail for each in standbys)][0 if own is not None or not standbys else 1]
    mine = [decode_tail(each, "") for each in one._entries] if one is not None else []
    return [tail for tail in tails if tail in mine]


def _under_a_name_of_a_dead_one(self: Any) -> None:
    here = {standby.life for standby in self.waiting}
    self._started = next(n for n in range(100) if f"s{n + 1}" not in here)
    _start(self)


def _of_the_members_before(self: Any, record: Any) -> None:
    before = self.members
    _apply(self, record)
    if isinstance(record, Membership) and before is not None and before.token == record.token:
        self.members = before


def _recorded_at_once(self: Any, order: Any, *, unanswered: bool) -> None:
    _place(self, order, unanswered=unanswered)
    if not unanswered and self._holders is not None:
        self._recorded(order, self._ledgers[order.sink] + 1, None, stored=False)


def _due_alone(self: Any) -> Any:
    due, self.reached = _due(self), 0
    return due


def _however_far(self: Any, _tails: Any) -> bool:
    return not self._world.without_ledger and self._world.held.keys() <= self.settings.tellers


def _beside_receivers(self: Any, tails: Any) -> bool:
    found = carried_behind(self._world, self._log, tails)
    return bool(self._world.without_ledger) and found.rests <= found.end


MUTANTS_OF_PEERS: dict[str, Mutant] = {
    "peer-fewer": Mutant("one member fewer than the depth is enough", {(Holders, "count"): _one_fewer}),
    "peer-quorum": Mutant("one promise fewer is enough", {(peers, "missing"): _one_promise_fewer}),
    "peer-memory": Mutant("the members change in memory alone", {(Holders, "change"): _in_memory_alone}),
    "peer-behind": Mutant("what is behind a change of the members counts", {(Holders, "count"): _behind_a_change}),
    "peer-promise": Mutant("a member gives its tail, and promises nothing", {(HeldTail, "promise"): _tail_alone}),
    "peer-peek": Mutant("tails are read before the promises", {(Peers, "gather"): _peeked}),
    "peer-one-tail": Mutant("the tail of one member is taken for all", {(Peers, "gather"): _of_one_member}),
    "peer-amnesia": Mutant(
        "a standby that starts has a dead one's life", {(Standbys, "_start"): _under_a_name_of_a_dead_one}
    ),
    "peer-old-members": Mutant("the members before count", {(LogHistory, "apply"): _of_the_members_before}),
    "peer-account": Mutant("a delivery counts before it is recorded", {(Deliveries, "place"): _recorded_at_once}),
    "peer-unread": Mutant(
        "a claimant goes on, however far acts rest", {(SimulatedDriver, "_does_without"): _however_far}
    ),
    "peer-guess": Mutant(
        "a claimant goes on beside receivers without account", {(SimulatedDriver, "_does_without"): _beside_receivers}
    ),
    "peer-rests": Mutant("acts do not say how far they rest", {(Holders, "due"): _due_alone}),
}
