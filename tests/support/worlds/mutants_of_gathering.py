"""Deliberate faults of merges that gather, and of sources that meet: epochs that a replay does not repeat."""

from boatlift.runtime.machine.kinds.endpoints import SourceProcessor
from boatlift.runtime.machine.kinds.gathered import Gathered
from boatlift.times import last_of
from support.worlds.mutant import Mutant

_LAGS, _UPCOMING = SourceProcessor.lags.fget, Gathered.upcoming


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


def _once_more(self):
    if _LAGS(self):
        return True
    closes = bool(self.partners) and self.resting and vars(self).setdefault("_closed", 1) < self.incarnation
    if closes:
        self._closed = self.incarnation
    return closes


MUTANTS_OF_GATHERING = {
    "meeting-empty": Mutant(
        "a source that failed closes an epoch for which none of its partners had input",
        {(SourceProcessor, "lags"): property(_once_more)},
    ),
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
