"""Laws of a sink behind a network that loses, refuses and tears what passes: each act of an owner meets each fault.

An act is what a proxy sees as one: a request of HTTP, or a statement of SQL.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from boatlift.dataflow.contracts import Committed, Outcome, Sink
from boatlift.testing.fault_proxy import ProxyFault
from connectors.conformance import context, put, rows_of, visible

Decides = Callable[[Callable[[], ProxyFault]], None]
"""Lets a proxy ask a function what becomes of each act from now on."""


def digest(step: int) -> Committed:
    return Committed(step, len(rows_of(step)), f"digest {step}")


def acts_of_an_owner(make: Callable[[], Sink], folder: Path, decides: Decides) -> int:
    """Return how many acts `open` and `commit` have, of an owner that takes over from another one."""
    count = 0

    def counts() -> ProxyFault:
        nonlocal count
        count += 1
        return ProxyFault.NONE

    for token in (1, 2):
        decides(counts if token == 2 else lambda: ProxyFault.NONE)
        sink = make()
        assert sink.open(context(token)) == (None if token == 1 else digest(0))
        assert put(sink, folder, token - 1) is Outcome.APPENDED
        sink.close()
    decides(lambda: ProxyFault.NONE)
    return count


def each_act_may_fail(
    make: Callable[[], Sink], folder: Path, decides: Decides, fault: ProxyFault, read: Callable[[], list[Any]]
) -> None:
    """Law: after `open` the place has each step once, and `commit` appends it once, whichever act of both has failed.

    Args:
        make: Makes the sink of a next owner, which reaches its place through the proxy.
        read: Returns the rows that readers see.
    """
    count = acts_of_an_owner(make, folder, decides)
    assert count > 5
    failed = 0
    for point in range(count):
        left = [point]

        def fails_once(left: list[int] = left) -> ProxyFault:
            left[0] -= 1
            return fault if left[0] == -1 else ProxyFault.NONE

        decides(fails_once)
        sink, newest = make(), 1 + point
        assert sink.open(context(3 + point)) == digest(newest)
        assert put(sink, folder, newest + 1) is Outcome.APPENDED
        failed += left[0] < 0
        decides(lambda: ProxyFault.NONE)
        assert put(sink, folder, newest + 1) is Outcome.DROPPED
        sink.close()
    assert failed >= count - 1, "the acts of owners are as many as before"
    assert read() == visible(make_opened(make, 3 + count), count + 2)


def make_opened(make: Callable[[], Sink], token: int) -> Sink:
    """Return the sink of a next owner, whose findings are none."""
    sink = make()
    sink.open(context(token))
    assert list(sink.verify()) == []
    return sink
