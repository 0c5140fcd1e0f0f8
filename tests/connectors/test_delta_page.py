"""The code of the guide's page about Delta Lake does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from boatlift.testing.object_server import ObjectServer
from support.pages import blocks, flights_of
from support.reader import cut_year


@pytest.mark.spark
def test_a_dataflow_into_delta_tables_goes_as_is_said(
    tmp_path: Path, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    year = cut_year(tmp_path)
    (tmp_path / "weeks").mkdir()
    for week in sorted(year.glob("*.csv"))[:2]:
        shutil.copy(week, tmp_path / "weeks")
    sinks, look = [each.text for each in blocks() if each.page.stem == "delta"]
    table = object_server.url(f"{tmp_path.name}/flights")
    written = sinks.replace("s3://bucket/flights", table)
    (tmp_path / "flights.py").write_text(f"{flights_of(2)}\n{written}", encoding="utf-8")
    command = [str(Path(sys.prefix, "bin", "boatlift")), "run", "flights:flow", "--store", "store", "--available-now"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(look, names)
    there = {"AWS_ENDPOINT_URL": os.environ["AWS_ENDPOINT_URL"], "AWS_ALLOW_HTTP": "true"}
    flights = DeltaTable(table, storage_options=there).to_pandas()
    assert len(flights) > 10_000
    routes = duckdb.sql(
        "SELECT origin, dest, avg(arr_delay) AS delay FROM flights GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    held = sorted(names["routes"].index.to_list())
    assert [row[:2] for row in held] == [row[:2] for row in routes if row[2] is not None]
    assert all(abs(mine[2] - theirs[2]) < 1e-9 for mine, theirs in zip(held, routes, strict=True))
