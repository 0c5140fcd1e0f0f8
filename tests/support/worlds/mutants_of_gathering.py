"""Deliberate faults of merges that gather: epochs that a replay does not repeat."""

from boatlift.runtime.machine.kinds.gathered import Gathered
from boatlift.times import last_of
from support.worlds.mutant import Mutant

_UPCOMING = Gathered.upcoming


def _whatever_is_there(self, determinants, *, hasten):
    del determinants
    return _UPCOMING(self, {}, hasten=hasten)


def _one_edge_as_it_is(self, determinants, *, hasten):
    before = dict(self.cuts.end(last_of(self.done)))
    for step in _UPCOMING(self, determinants, hasten=hasten):
        edge, sender = self.senders[-1]
        ends = dict(step.taken) | {edge.name: max(self.complete(edge, sender), before[edge.name])}
        yield self._step(step.time, before, ends)
        before = ends


MUTANTS_OF_GATHERING = {
    "gathered-anew": Mutant(
        "an epoch that is executed again takes all that has come", {(Gathered, "upcoming"): _whatever_is_there}
    ),
    "gathered-edge": Mutant(
        "the end of an epoch is recorded for all edges but one", {(Gathered, "upcoming"): _one_edge_as_it_is}
    ),
    "gathered-fixed": Mutant(
        "an epoch goes on though what it has taken comes anew", {(Gathered, "is_fixed"): lambda *_: True}
    ),
}
