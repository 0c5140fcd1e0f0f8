"""`boatlift explain`, printed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from boatlift.console.tables import print_json, show, table
from boatlift.runtime.inspect.explanation import RollbackCost, explanation_of
from boatlift.runtime.inspect.opening import log_at
from boatlift.runtime.inspect.outlook import EXECUTED_AGAIN
from boatlift.runtime.inspect.upkeep import Upkeep

__all__ = ["show_explanation"]

HEADINGS = (
    "processor",
    "rolled back to",
    "steps executed again",
    "of these replayed as they were",
    "rows",
    "seconds",
)


def show_explanation(path: Path, failed: Iterable[str], *, as_json: bool) -> None:
    """Print the cost of a failure, then what each processor keeps, and the cost of its last steps.

    Args:
        path: The store.
        failed: The processors that fail; all of them if none is named.
        as_json: Print JSON.
    """
    explanation = explanation_of(log_at(path), frozenset(failed))
    if as_json:
        print_json(explanation)
        return
    failing = "everything" if explanation.everything_fails else ", ".join(explanation.failed)
    print(f"If {failing} failed now, as far as the log knows:\n")
    _show_costs(explanation.processors)
    print("\nWhere each processor goes on from:")
    for cost in explanation.processors.values():
        print(f"  {cost.does}")
    for line in explanation.queues:
        print(f"  {line}")
    print()
    _show_upkeep(explanation.upkeep)


def _show_costs(processors: Mapping[str, RollbackCost]) -> None:
    costs = {name: cost for name, cost in processors.items() if cost.steps}
    if not costs:
        print("Nothing is executed again.")
        return
    rows = table(*HEADINGS, title="The cost of the rollback, by what the steps took before")
    for name, cost in costs.items():
        counts = (f"{count:,}" for count in (cost.steps, cost.repeated, cost.rows))
        rows.add_row(name, cost.rolled_back_to, *counts, f"{cost.seconds:.1f}")
    show(rows)
    print(EXECUTED_AGAIN)


def _show_upkeep(upkeep: Mapping[str, Upkeep]) -> None:
    rows = table(
        "processor", "part of its state", "runs", "rows", "bytes", "rows a step", "ms a step", title="What is kept"
    )
    for name, each in upkeep.items():
        cost = (f"{each.rows:,}", f"{each.milliseconds:,.0f}") if each.steps else ("", "")
        if not each.state:
            rows.add_row(name, "none" if each.checkpoint < 0 else "empty", "", "", "", *cost)
        for number, kept in enumerate(each.state):
            counts = (f"{count:,}" for count in (kept.files, kept.rows, kept.bytes))
            rows.add_row(name if number == 0 else "", kept.part or "all", *counts, *(cost if number == 0 else ("", "")))
    show(rows)
