"""Logical time: domains, frontiers, projections. Pure."""

from boatlift.times.domain import EPOCH, Domain, Epoch
from boatlift.times.frontier import AnyFrontier, EpochFrontier, Frontier, last_of
from boatlift.times.projection import IDENTITY, Identity, Projection
from boatlift.times.time_set import TimeSet

__all__ = [
    "EPOCH",
    "IDENTITY",
    "AnyFrontier",
    "Domain",
    "Epoch",
    "EpochFrontier",
    "Frontier",
    "Identity",
    "Projection",
    "TimeSet",
    "last_of",
]
