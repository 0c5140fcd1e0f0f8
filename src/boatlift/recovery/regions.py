"""Regions of processors with common fixed times, which are computed once for each region."""

from __future__ import annotations

from boatlift.recovery.graph import RecoveryGraph
from boatlift.times import IDENTITY

Roots = frozenset[str]


class Regions:
    """A graph without cycles, divided by the origin of fixed times.

    At a fixed point f(p) lies within the times fixed on p's inputs (`delivered`), so the fixed times of a deterministic
    processor *are* those of its inputs. If no edge changes times either, they are the intersection of those of its
    roots: the nearest upstream processors with determinants, or with an input edge that changes times.

    Attributes:
        roots: Processor to its roots; a root to itself alone.
        of_root: Root to all sets of roots that contain it.
        fed: Set of roots to the roots that receive messages from a processor with this set.
    """

    def __init__(self, graph: RecoveryGraph) -> None:
        self.roots: dict[str, Roots] = {}
        self.of_root: dict[str, list[Roots]] = {}
        self.fed: dict[Roots, set[str]] = {}
        for p in graph.order:
            edges = graph.inputs[p]
            above = [self.roots[edge.source] for edge in edges]
            if graph.vertices[p].chooses or any(edge.projection is not IDENTITY for edge in edges):
                self.roots[p] = frozenset((p,))
                for roots in above:
                    self.fed.setdefault(roots, set()).add(p)
            else:
                self.roots[p] = frozenset().union(*above)
        for roots in dict.fromkeys(self.roots.values()):
            for root in roots:
                self.of_root.setdefault(root, []).append(roots)
