"""The time of a pushed row until SQLite has its result.

`python -m benchmarks.sides.push_probe HOST PORT FILE WARM_UP ROWS RATE` pushes numbered rows over HTTP to `/pushes`,
one by one, and looks for the largest number in the table `newest`. The output is the milliseconds from the begin of
each push to the first look that finds it, without those of the warm-up.
"""

from __future__ import annotations

import http.client
import json
import sqlite3
import sys
import threading
import time
from pathlib import Path

__all__ = ["main"]

PATIENCE = 120.0

PAUSE = 0.001
"""Seconds between two looks."""


def main() -> None:
    """Measure, and print a list."""
    host, port, file, *counts = sys.argv[1:]
    warm_up, rows, rate = map(int, counts)
    count = warm_up + rows
    sent_at: dict[int, float] = {}
    begun = threading.Event()

    def push() -> None:
        connection = http.client.HTTPConnection(host, int(port))
        due = time.monotonic()
        for number in range(count):
            sent_at[number] = time.monotonic()
            body = json.dumps({"number": number})
            connection.request("POST", "/pushes", body, {"Idempotency-Key": str(number)})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.OK:
                raise RuntimeError(answer.read())
            answer.read()
            if not number:
                begun.wait(PATIENCE)
                due = time.monotonic()
            due += 1 / rate
            time.sleep(max(0.0, due - time.monotonic()))

    threading.Thread(target=push, daemon=True).start()
    took: list[float] = []
    until = time.monotonic() + 2 * PATIENCE + count / rate
    database: sqlite3.Connection | None = None
    while len(took) < count:
        if time.monotonic() > until:
            raise RuntimeError(f"{count - len(took)} rows did not come out")
        time.sleep(PAUSE)
        if database is None and Path(file).exists():
            database = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
        newest = None if database is None else _newest(database)
        now = time.monotonic()
        if newest is not None:
            begun.set()
            took += [1000 * (now - sent_at[number]) for number in range(len(took), newest + 1)]
    print(json.dumps(took[warm_up:]))


def _newest(database: sqlite3.Connection) -> int | None:
    """Return the largest number in the table; None before there is one."""
    try:
        (newest,) = database.execute("SELECT max(number) FROM newest").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error) or "locked" in str(error):
            return None
        raise
    return None if newest is None else int(newest)


if __name__ == "__main__":
    main()
