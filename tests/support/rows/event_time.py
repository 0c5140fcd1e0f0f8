"""Event time in plain Python: what LATENESS, windows, duplicates and timers do with steps of rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

__all__ = ["BEGIN", "Bounds", "drawn_steps", "first_rows", "judged", "windows_of"]

BEGIN = datetime(2026, 3, 1, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)

Fields = dict[str, Any]
Rows = Sequence[Fields]


@dataclass
class Bounds:
    """The bound of event time as steps move it.

    Attributes:
        lateness: How late rows can be.
        bound: The bound after the steps so far; None before the first row with a time.
    """

    lateness: timedelta
    bound: datetime | None = None
    after: list[datetime | None] = field(default_factory=list)

    def judge(self, rows: Rows) -> tuple[list[Fields], list[Fields]]:
        """Return the rows of a step that are not late, and those that are; then move the bound."""
        before = self.bound
        late = [row for row in rows if before is not None and row["at"] is not None and row["at"] < before]
        timely = [row for row in rows if row not in late]
        times = [row["at"] for row in rows if row["at"] is not None]
        if times:
            newest = max(times) - self.lateness
            newest = newest.replace(microsecond=newest.microsecond // 1000 * 1000)
            self.bound = newest if before is None else max(before, newest)
        self.after.append(self.bound)
        return timely, late


def judged(steps: Sequence[Rows], lateness: timedelta) -> tuple[list[list[Fields]], list[list[Fields]], Bounds]:
    """Return of each step the rows that are not late and those that are, and the bounds."""
    bounds = Bounds(lateness)
    pairs = [bounds.judge(rows) for rows in steps]
    return [timely for timely, _ in pairs], [late for _, late in pairs], bounds


def windows_of(
    timely: Sequence[Rows], bounds: Bounds, length: timedelta, slide: timedelta
) -> list[Counter[tuple[datetime, str, int, int]]]:
    """Return for each step the windows that end at it: begin, key, number of rows, and their sum of `v`."""
    held: dict[tuple[datetime, str], list[int]] = {}
    steps = []
    for number, rows in enumerate(timely):
        for row in rows:
            if row["at"] is None:
                continue
            since = row["at"] - datetime(1970, 1, 1, tzinfo=UTC)
            begin = row["at"] - since % slide
            while begin + length > row["at"]:
                held.setdefault((begin, row["k"]), []).append(row["v"])
                begin -= slide
        bound = bounds.after[number]
        ended = [each for each in held if bound is not None and each[0] + length <= bound]
        steps.append(Counter((begin, key, len(v), sum(v)) for begin, key in ended for v in [held.pop((begin, key))]))
    return steps


def first_rows(timely: Sequence[Rows], bounds: Bounds, within: timedelta) -> list[Counter[tuple[str, Any]]]:
    """Return for each step key and time of the rows that are no duplicates; times are those of keys that have one."""
    held: dict[str, datetime] = {}
    steps = []
    for number, rows in enumerate(timely):
        bound = bounds.after[number - 1] if number else None
        here: Counter[tuple[str, Any]] = Counter()
        earliest: dict[str, datetime] = {}
        for row in rows:
            earliest[row["k"]] = min(row["at"], earliest.get(row["k"], row["at"]))
        for key, at in earliest.items():
            if key not in held or (bound is not None and _whole(held[key]) + within <= bound):
                held[key] = at
                here[key, at] += 1
        steps.append(here)
    return steps


def drawn_steps(seed: int, *, steps: int = 8, rows: int = 12, nulls: bool = False) -> list[list[Fields]]:
    """Return steps of rows whose times go on by and by, some of them late."""
    chance = random.Random(seed)
    made = []
    for step in range(steps):
        now = BEGIN + 50 * step * SECOND
        here = []
        for number in range(rows if step != 3 else 0):
            at = now + timedelta(milliseconds=chance.randrange(-150_000, 30_000), microseconds=chance.randrange(1000))
            known = not nulls or chance.random() > 0.1
            here.append({"k": f"k{chance.randrange(4)}", "v": 100 * step + number, "at": at if known else None})
        made.append(here)
    return made


def _whole(at: datetime) -> datetime:
    return at.replace(microsecond=at.microsecond // 1000 * 1000)
