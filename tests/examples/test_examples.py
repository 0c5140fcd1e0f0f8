"""The examples do what they say, on the first weeks of the real flights."""

from __future__ import annotations

import os
import re
import runpy
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boatlift as bl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker
    from boatlift.testing.object_server import ObjectServer
    from boatlift.testing.postgres_server import PostgresServer

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"
WEEKS = 5


@pytest.fixture
def weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    from cut_flights import cut

    cut(tmp_path / "all")
    return sorted((tmp_path / "all").glob("*.csv"))[:WEEKS]


def run(name: str, spark: SparkSession) -> dict[str, Any]:
    # Afresh: where a flow finds its input is settled when its module is run.
    sys.modules.pop("flights", None)
    made = runpy.run_path(str(EXAMPLES / f"{name}.py"))
    bl.run(made["flow"], "store", available_now=True, spark=spark)
    return made


def test_the_flights_come_out_as_a_plain_query_over_them_does(weeks: list[Path], spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    folder = Path("data/flights")
    folder.mkdir(parents=True)
    for week in weeks:
        week.rename(folder / week.name)
    made = run("flights", spark)
    rows = spark.read.schema(made["SCHEMA"]).csv(str(folder.absolute()), header=True, nullValue="NA")
    expected = made["landed"](rows).groupBy("origin", "dest").agg(F.count("*"), F.max("arr_delay")).collect()
    with closing(sqlite3.connect("answers.db")) as database:
        found = database.execute("SELECT origin, dest, flights, worst FROM delays").fetchall()
    assert sorted(found) == sorted(map(tuple, expected))


def test_four_regimes_answer_every_question_from_what_was_known(
    weeks: list[Path], spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import demo

    monkeypatch.setattr(demo, "FOLDER", Path.cwd())
    queries = list(demo.questions(weeks, Path("asked")))
    for folder in ("flights", "queries"):
        Path(folder).mkdir()
    for some in (2, WEEKS):
        demo.come_in(weeks[:some], Path("flights"))
        demo.come_in(queries[: 2 * some], Path("queries"))
        run("answers", spark)
    capsys.readouterr()
    demo.verdict(weeks, queries)
    told = [line for line in capsys.readouterr().out.splitlines() if "mean delay" in line]
    bits = [re.findall(r"\b[0-9a-f]{16}\b", line) for line in told]
    assert bits, "bits stand side by side"
    assert all(ours == plain for ours, plain in bits)


@pytest.mark.kafka
def test_the_six_outputs_of_a_shop_are_what_plain_python_makes(
    tmp_path: Path, spark: SparkSession, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOATLIFT_DEMO_SERVERS", kafka_broker.bootstrap)
    import shop_demo

    shop = shop_demo.open_shop(tmp_path, kafka_broker.bootstrap, files=4, seed=7)
    run("shop", spark)
    shop_demo.judge(tmp_path, kafka_broker.bootstrap, shop)


@pytest.mark.kafka
def test_the_outputs_of_a_lake_are_what_duckdb_makes_and_a_row_that_is_wrong_is_found(
    tmp_path: Path,
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    objects_for_tasks: ObjectServer,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BOATLIFT_DEMO_SERVERS", kafka_broker.bootstrap)
    monkeypatch.setenv("BOATLIFT_DEMO_LAKE", objects_for_tasks.url(tmp_path.name))
    import lake_demo

    demo = lake_demo.Demo(kafka_broker, objects_for_tasks, postgres_server, tmp_path, seed=7)
    demo.produce(3000)
    bl.run(runpy.run_path(str(EXAMPLES / "lake_flights.py"))["lake"], "store", available_now=True, spark=spark)
    demo.judge()
    with postgres_server.connect(os.environ["PGDATABASE"]) as connection:
        connection.execute("UPDATE routes SET flights = flights + 1 WHERE dest = 'BOS' AND origin = 'JFK'")
    with pytest.raises(lake_demo.WrongError, match=r"PostgreSQL: 1 rows are lacking: .*; 1 are too many"):
        demo.judge()
