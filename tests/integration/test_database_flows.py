"""Dataflows into databases that change and go back: their tables are corrected from what these hold."""

from __future__ import annotations

from contextlib import chdir
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.connectors.databases import transactions
from boatlift.runtime.host.points import change_points
from connectors.database_cases import KEYED, Case, Server, kind_of
from support.changes import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(params=KEYED)
def case(request: pytest.FixtureRequest) -> Case:
    case: Case = request.param
    return case


@pytest.fixture
def server(request: pytest.FixtureRequest, case: Case) -> Server:
    found: Server = request.getfixturevalue(f"{kind_of(case)}_server")
    return found


def flow_of(case: Case, name: str = "sums", factor: int = 1) -> bl.Dataflow:
    flow = bl.Dataflow(name)
    rows = flow.source("rows", bl.files("in/*.csv", schema="k INT, v LONG", max_files_per_step=1))
    sums = rows.group_by("k").agg("totals", F.sum(F.col("v") * factor).alias("total"), policy=bl.Lazy(every=2))
    sums.sink("answers", case.sink(table=name, key=["k"]))
    sums.sink("changes", case.sink(table=f"{name}_changes"))
    return flow


def current(case: Case, name: str = "sums") -> list[tuple[int, int]]:
    """Return the rows of the keyed table, which the sum of the changes must have, too."""
    rows = sorted(case.on.query(f"SELECT k, total FROM {name}"))
    summed = case.on.query(f"SELECT k, total FROM {name}_changes GROUP BY k, total HAVING sum(_weight) = 1")
    assert sorted(summed) == rows
    assert case.on.query(f"SELECT 1 FROM {name}_changes GROUP BY k, total HAVING sum(_weight) NOT IN (0, 1)") == []
    return rows


@pytest.mark.usefixtures("server")
def test_a_changed_program_corrects_its_tables_and_goes_back(case: Case, tmp_path: Path, spark: SparkSession) -> None:
    with chdir(tmp_path):
        for number in range(3):
            write(tmp_path, number)
        bl.run(flow_of(case), "store", available_now=True, spark=spark)
        first = current(case)
        assert [*change_points("store", "point")]
        plan = bl.evolution(flow_of(case, factor=2), "store", spark=spark)
        bl.run(flow_of(case, factor=2), "store", available_now=True, evolve=plan.id, spark=spark)
        assert current(case) == [(key, 2 * total) for key, total in first]
        write(tmp_path, 3)
        bl.run(flow_of(case, factor=2), "store", available_now=True, spark=spark)
        assert current(case) != first
        back = bl.evolution(flow_of(case), "store", to="point", spark=spark)
        bl.rewind(flow_of(case), "store", to="point", evolve=back.id, spark=spark)
        assert current(case) == first


def test_a_server_that_is_away_for_long_ends_the_run_and_the_next_one_goes_on(
    server: Server, case: Case, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactions, "RETRY_FOR", 0.3)
    with chdir(tmp_path):
        for number in range(2):
            write(tmp_path, number)
        running = bl.start(flow_of(case), "store", spark=spark)
        server.kill()
        write(tmp_path, 2)
        with pytest.raises(bl.UnavailableError, match=r"\[SINK_FAILED\].*run again once the server answers"):
            running.wait(120)
        server.restart()
        bl.run(flow_of(case), "store", available_now=True, spark=spark)
        undisturbed = current(case)
        bl.run(flow_of(case, "fresh"), "other", available_now=True, spark=spark)
        assert current(case, "fresh") == undisturbed
