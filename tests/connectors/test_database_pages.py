"""The code of the guide's pages about databases does what it says."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from boatlift.testing.mysql_server import MysqlServer
from support import mysql, postgres
from support.pages import blocks, flights_of
from support.reader import cut_year


def page_of(stem: str) -> dict[str, str]:
    return {each.language: each.text for each in blocks() if each.page.stem == stem}


def follow(folder: Path, sinks: str, commands: list[str], variables: Mapping[str, str], on: ModuleType) -> str:
    """Run a page's program over two weeks, then its last command; return what that prints."""
    year = cut_year(folder)
    (folder / "weeks").mkdir()
    for week in sorted(year.glob("*.csv"))[:2]:
        shutil.copy(week, folder / "weeks")
    (folder / "flights.py").write_text(f"{flights_of(2)}\n{sinks}", encoding="utf-8")
    binaries = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": binaries, **variables}
    run, look = commands
    for command in (f"{run} --available-now", look):
        words = ["sh", "-ec", command]
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    name = {"dbname": "shop"} if on is postgres else {"database": "shop"}
    ((routes, of_routes),) = on.query("SELECT count(*), avg(delay) FROM routes", **name)
    ((flights,),) = on.query("SELECT count(*) FROM flights", **name)
    ((there,),) = on.query("SELECT count(*) FROM (SELECT DISTINCT origin, dest FROM flights) f", **name)
    assert routes == there > 100
    assert flights > 10_000
    assert of_routes is not None
    return done.stdout


@pytest.mark.spark
@pytest.mark.usefixtures("postgres_server")
def test_a_dataflow_into_postgresql_goes_as_is_said(tmp_path: Path) -> None:
    page = page_of("postgres")
    postgres.query("CREATE DATABASE shop")
    try:
        for statement in page["sql"].strip().splitlines():
            postgres.query(statement, dbname="shop")
        commands = page["sh"].strip().splitlines()[1:]
        sinks = page["python"].replace("host=db ", "")
        assert "(3 rows)" in follow(tmp_path, sinks, commands, {"PGDATABASE": "shop"}, postgres)
    finally:
        postgres.query("DROP DATABASE shop WITH (FORCE)")


@pytest.mark.spark
def test_a_dataflow_into_mariadb_goes_as_is_said(mysql_server: MysqlServer, tmp_path: Path) -> None:
    """With the page's rights, as a user of another name."""
    page = {language: text.replace("boatlift@", "shopper@") for language, text in page_of("mysql").items()}
    mysql.query("CREATE DATABASE shop")
    try:
        for statement in page["sql"].strip().splitlines():
            mysql.query(statement.replace("boatlift", "shopper").replace("…", "secret"))
        commands = [
            each.replace("-h db -u boatlift", f"-h 127.0.0.1 -P {mysql_server.port} -u shopper")
            for each in page["sh"].strip().splitlines()[1:]
        ]
        sinks = page["python"].replace("@db/", "@/")
        seen = follow(tmp_path, sinks, commands, {"MYSQL_PWD": "secret"}, mysql)
        assert len(seen.strip().splitlines()) == 4
    finally:
        mysql.query("DROP DATABASE shop")
        mysql.query("DROP USER IF EXISTS shopper")
