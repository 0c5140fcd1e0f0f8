"""The code of the guide's page about PostgreSQL does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.pages import blocks, flights_of
from support.postgres import query
from support.reader import cut_year

pytestmark = pytest.mark.usefixtures("postgres_server")


@pytest.mark.spark
def test_a_dataflow_into_postgresql_goes_as_is_said(tmp_path: Path) -> None:
    year, folder = cut_year(tmp_path), tmp_path
    (folder / "weeks").mkdir()
    for week in sorted(year.glob("*.csv"))[:2]:
        shutil.copy(week, folder / "weeks")
    page = {each.language: each.text for each in blocks() if each.page.stem == "postgres"}
    query("CREATE DATABASE shop")
    try:
        for statement in page["sql"].strip().splitlines():
            query(statement, dbname="shop")
        sinks = page["python"].replace("host=db ", "")
        (folder / "flights.py").write_text(f"{flights_of(2)}\n{sinks}", encoding="utf-8")
        _, run, look = page["sh"].strip().splitlines()
        binaries = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": binaries, "PGDATABASE": "shop"}
        for command in (f"{run} --available-now", look):
            words = ["sh", "-ec", command]
            done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
        assert "(3 rows)" in done.stdout
        ((routes, of_routes),) = query("SELECT count(*), avg(delay) FROM routes", dbname="shop")
        ((flights, there),) = query("SELECT count(*), count(DISTINCT (origin, dest)) FROM flights", dbname="shop")
        assert routes == there > 100
        assert flights > 10_000
        assert of_routes is not None
    finally:
        query("DROP DATABASE shop WITH (FORCE)")
