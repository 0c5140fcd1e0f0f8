"""Sources that meet in a processor have common steps (Feldera, dist-design: steps; views, "Steps of several sources").

A step of the processor has what each of them has, also nothing. So an idle source stops no other, and what one of them
brings is one step of all.
"""

from __future__ import annotations

from collections.abc import Iterable

from boatlift.recovery import Kind, RecoveryGraph

__all__ = ["sources_that_meet"]


def sources_that_meet(graph: RecoveryGraph) -> list[frozenset[str]]:
    """Return the sets of sources with common steps: two or more each, and no source in two of them.

    Two sources have common steps if a processor takes the messages of both at the time that they were sent; so have
    sources that share a partner. A processor in arrival order takes each message at a time of its own: there, and
    behind it, sources do not meet.
    """
    groups: list[frozenset[str]] = []
    above: dict[str, frozenset[str]] = {}
    for name in graph.order:
        vertex = graph.vertices[name]
        # The edge that closes a loop comes from a processor behind, which has no other sources above it.
        senders = [above.get(edge.source, frozenset()) for edge in graph.inputs[name]]
        if vertex.kind is Kind.SOURCE:
            above[name] = frozenset({name})
        elif not vertex.notified:
            above[name] = frozenset()
        else:
            above[name] = _all_of(senders)
        if len(above[name]) > 1:
            meeting = [group for group in groups if group & above[name]]
            groups = [group for group in groups if not group & above[name]]
            groups.append(_all_of([above[name], *meeting]))
    return groups


def _all_of(sets: Iterable[frozenset[str]]) -> frozenset[str]:
    return frozenset().union(*sets)
