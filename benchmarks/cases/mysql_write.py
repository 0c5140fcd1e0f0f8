"""Rows a second of upserts into MariaDB, exactly once, the whole dataflow with it.

Beside it PyMySQL alone: `executemany` of rows that are in memory, and `LOAD DATA LOCAL` of a file into a temporary
table, from which a statement upserts. All write new keys into a table whose primary key they are.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases.postgres_write import PRIME, STEPS, WARM_UPS, upserts_a_second
from benchmarks.harness.measuring import Effort, Figure, Result, median_ratio
from boatlift.testing.mysql_server import MysqlServer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["measure"]

OURS, MANY, LOADED = "boatlift", "PyMySQL's executemany alone", "PyMySQL's LOAD DATA LOCAL alone"
LEAST = {MANY: 0.5}
COLUMNS = "k bigint NOT NULL PRIMARY KEY, n bigint, v double"
UPSERT = "ON DUPLICATE KEY UPDATE n = VALUES(n), v = VALUES(v)"


def measure(effort: Effort) -> Result:
    """Write a million rows in four steps, in turns."""
    import boatlift as bl

    rows = effort.keys(1_000_000) // STEPS * STEPS
    with MysqlServer({"innodb-buffer-pool-size": "512M", "local-infile": "1"}) as server:
        os.environ.update(server.environment)
        spark = bl.session(**{"spark.driver.memory": "4g"})
        try:
            sides: dict[str, Callable[[], float]] = {
                OURS: lambda: upserts_a_second(
                    spark, rows, lambda table: bl.mysql("mysql://boatlift@/test", table=table, key=["k"])
                ),
                MANY: lambda: _alone(server, rows, _many),
                LOADED: lambda: _alone(server, rows, _loaded),
            }
            turns = [{name: side() for name, side in sides.items()} for _ in range(WARM_UPS + effort.rounds)]
        finally:
            spark.stop()
    rates = {name: [turn[name] for turn in turns[WARM_UPS:]] for name in sides}
    ratios = {name: median_ratio(rates[OURS], rates[name]) for name in LEAST}
    return Result(
        name="mysql_write",
        target="rows/s: at least " + ", ".join(f"{least:g} of {name}" for name, least in LEAST.items()),
        met=all(ratios[name] >= least for name, least in LEAST.items()),
        ratios=ratios,
        figures={name: Figure.of("rows/s", values) for name, values in rates.items()},
    )


def _alone(server: MysqlServer, count: int, write: Callable[[Any, list[tuple[int, int, float]]], None]) -> float:
    rows = [(number * PRIME % count, number, number * 0.25) for number in range(count)]
    with server.connect("test", local_infile=True, autocommit=False) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS alone")
        cursor.execute(f"CREATE TABLE alone ({COLUMNS})")
        began = time.perf_counter()
        for start in range(0, count, count // STEPS):
            write(cursor, rows[start : start + count // STEPS])
            connection.commit()
        return count / (time.perf_counter() - began)


def _many(cursor: Any, rows: list[tuple[int, int, float]]) -> None:
    cursor.executemany(f"INSERT INTO alone (k, n, v) VALUES (%s, %s, %s) {UPSERT}", rows)


def _loaded(cursor: Any, rows: list[tuple[int, int, float]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows"
        path.write_text("".join(f"{key}\t{number}\t{value!r}\n" for key, number, value in rows))
        cursor.execute(f"CREATE TEMPORARY TABLE step ({COLUMNS})")
        cursor.execute("LOAD DATA LOCAL INFILE %s INTO TABLE step", (str(path),))
        cursor.execute(f"INSERT INTO alone SELECT * FROM step {UPSERT}")
        cursor.execute("DROP TEMPORARY TABLE step")
