"""A query has one identity in every process, and what a JVM makes once is no part of other queries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from boatlift.views.same_ids import same_ids
from support.rows.compiled_views import WINDOWS

PROCESSES, OF_CHANCE, OF_OTHERS = (4, 8, 8) if os.environ.get("BOATLIFT_IDENTITIES") == "all" else (2, 4, 0)
"""So many processes compile the queries of chance so often, and with `make identities` all others, too."""
AT_ONCE = 2
ROOT = Path(__file__).parents[2]


def started(folder: Path, turn: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "support.rows.compiled_views", str(folder / str(turn)), str(turn % len(WINDOWS))]
    times = [str(OF_CHANCE), str(OF_OTHERS)]
    environment = {"PYTHONPATH": f"{ROOT / 'tests'}{os.pathsep}{ROOT}", "PYTHONHASHSEED": str(turn)}
    with (folder / f"{turn}.jsonl").open("wb") as said:
        return subprocess.Popen([*command, *times], env={**os.environ, **environment}, stdout=said)


@pytest.mark.spark
@pytest.mark.timeout(7200)
def test_a_query_has_one_identity_in_every_process(tmp_path: Path) -> None:
    """In each process another window function is the first view, and its rows are Spark's."""
    for first in range(0, PROCESSES, AT_ONCE):
        processes = [started(tmp_path, turn) for turn in range(first, first + AT_ONCE)]
        assert [process.wait() for process in processes] == [0] * AT_ONCE
    said = [(tmp_path / f"{turn}.jsonl").read_text().splitlines() for turn in range(PROCESSES)]
    found: dict[str, set[str]] = {}
    for line in (line for lines in said for line in lines):
        queries, identities = json.loads(line)
        for number, query in enumerate(queries):
            of_view = {name: each for name, each in identities.items() if name.split("-")[0] == f"processor v{number}"}
            found.setdefault(query, set()).add(json.dumps(of_view, sort_keys=True))
    assert [len(lines) for lines in said] == [OF_CHANCE + 3 * OF_OTHERS] * PROCESSES
    assert [query for query, identities in found.items() if len(identities) != 1 or identities == {"{}"}] == []


@pytest.mark.spark
def test_an_id_is_given_once_and_hashes_are_given_anew(spark: SparkSession) -> None:
    catalyst = cast("Any", spark)._jvm.org.apache.spark.sql.catalyst
    named = getattr(getattr(catalyst, "expressions.NamedExpression$"), "MODULE$")

    def ids() -> list[Any]:
        return [named.newExprId() for _ in range(5)]

    blocks = [ids()]
    for _ in range(3):
        with same_ids(spark):
            blocks.append(ids())
    blocks.append(ids())
    assert len({each.id() for block in blocks for each in block}) == 25
    assert len({tuple(each.hashCode() for each in block) for block in blocks[1:4]}) == 1
    assert blocks[4][0].id() - blocks[0][-1].id() < 1 << 20
