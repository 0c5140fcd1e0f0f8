"""`boatlift verify`, printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from boatlift.console.tables import print_json
from boatlift.dataflow import Sink
from boatlift.runtime.inspect.verification import verification_of

__all__ = ["show_verification"]

DAMAGED = 5
"""The exit status if something is damaged: that of `DataError`."""


def show_verification(path: Path, sinks: Mapping[str, Sink], *, as_json: bool) -> int:
    """Check a store and sinks, print the outcome, and return the exit status."""
    outcome = verification_of(path, sinks)
    if as_json:
        print_json(outcome)
    else:
        print(*outcome.findings, sep="\n", end="\n" if outcome.findings else "")
        checked = ", ".join(["the store", *(f"sink {name}" for name in outcome.sinks)])
        print(f"everything verifies: {checked}" if outcome.ok else f"{len(outcome.faults)} faults")
    return 0 if outcome.ok else DAMAGED
