"""What a view says of a type that it refuses: the SQL that it advises compiles, and gives Spark's rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import boatlift as bl
from views.judge import judge
from views.random_queries import Generated, Table

POINT = "X'0101000000000000000000F03F0000000000000040'"
VALUES = {
    "variant": "parse_json(s)",
    "variants": "array(parse_json(s), NULL)",
    "field": "if(v > 2, named_struct('the p', parse_json(s), 'q', v), NULL)",
    "map of variants": "map(k, parse_json(s))",
    "geometry": f"st_geomfromwkb(if(v > 2, NULL, {POINT}))",
    "geography": f"if(v > 2, st_geogfromwkb({POINT}), NULL)",
    "geometries": f"map('p', array(st_geomfromwkb(if(v > 2, NULL, {POINT}))))",
    "months": "make_ym_interval(int(v), 2)",
    "months in an array": "array(make_ym_interval(int(v)))",
    "interval": "make_interval(1, int(v))",
    "interval as a key": "map(make_interval(1, int(v)), v)",
    "time": "if(v > 2, TIME'09:00:00.5', TIME'10:00:00')",
    "map": "map(k, v, k + 1, v)",
    "map in a map": "map(k, map('a', v))",
    "map in an array": "array(map(array(k), v))",
    "no type": "array()",
    "fields of one name": "array(named_struct('p', k, 'p', v, 'the p', k))",
}
APPENDED = "SELECT k, {x} AS x FROM a"
JOINED = "SELECT b.k, l.x FROM (SELECT k, {x} AS x FROM a) l JOIN a b ON b.k = l.k"
SHAPES = [
    APPENDED,
    JOINED,
    "SELECT b.k, l.x FROM (SELECT k, {x} AS x FROM a) l RIGHT JOIN a b ON b.k = l.k AND b.v < l.k",
    "SELECT k, x FROM (SELECT k, {x} AS x FROM a) WHERE k <= (SELECT max(v) FROM a)",
    "SELECT x, count(*) AS n FROM (SELECT k, {x} AS x FROM a) GROUP BY x",
    "SELECT DISTINCT k, {x} AS x FROM a",
    "SELECT k, count(x) AS n, max(v) AS m FROM (SELECT k, v, {x} AS x FROM a) GROUP BY k",
    "SELECT k, max(x) AS x FROM (SELECT k, {x} AS x FROM a) GROUP BY k",
    "SELECT k, x, count(*) OVER (PARTITION BY k) AS n FROM (SELECT k, {x} AS x FROM a)",
    "SELECT k, x FROM (SELECT k, v, {x} AS x FROM a) ORDER BY v, k LIMIT 2",
]
STEPS = [[{"k": 1, "v": 2, "s": "1"}, {"k": 1, "v": 11, "s": "[1, 2]"}], [{"k": 2, "v": 5, "s": '{"b": 1}'}]]


def _refusal(query: str, store: str, spark: SparkSession) -> str | None:
    """Return why a view is refused, if it is."""
    flow = bl.Dataflow("advice")
    flow.source("a", bl.files("a/*.parquet", format="parquet", schema="k BIGINT, v BIGINT, s STRING"))
    try:
        flow.sql("view", query).sink("out", bl.parquet(f"{store}-out"))
        bl.run(flow, store, available_now=True, spark=spark)
    except bl.InvalidError as refused:
        return str(refused)
    return None


@pytest.mark.parametrize("name", VALUES)
def test_what_a_refusal_advises_is_a_view_with_sparks_rows(
    interpreting: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a").mkdir()
    taken, refused = [], set()
    for number, shape in enumerate(SHAPES):
        query = shape.format(x=VALUES[name])
        said = _refusal(query, f"store{number}", interpreting)
        if said is None:
            taken.append(query)
        elif not said.startswith("[BAD_VIEW]"):  # Spark takes no such query
            found = re.match(r"\[TYPE_REFUSED\] column (.+) of the query of view holds .*: write (.+) in its", said)
            assert found is not None, (query, said)
            assert found[1] in ("x", VALUES[name], VALUES[name].replace("(s)", "(a.s)")), said
            refused.add(shape)
            taken.append(
                shape.format(x=found[2]).replace("FROM a", f"FROM (SELECT *, {VALUES[name]} AS x FROM a) a", 1)
            )
    assert (APPENDED in refused) == (name not in ("map", "time"))
    assert JOINED in refused
    table = Table("a", {"k": "BIGINT", "v": "BIGINT", "s": "STRING"}, STEPS)
    assert judge(interpreting, Generated([table], taken), tmp_path / "case") >= len(taken)


def test_what_is_advised_has_the_order_of_the_type(interpreting: SparkSession) -> None:
    """Months and times have an order, and `max` of the advised values is that of the values themselves."""
    rows = (
        "FROM VALUES (make_ym_interval(10, 1), TIME'09:00:00.5'), (make_ym_interval(9, 11), TIME'10:00:00') AS t(i, t)"
    )
    months = "CAST(CAST({} AS INTERVAL MONTH) AS INT)"
    (row,) = interpreting.sql(
        f"SELECT {months.format('max(i)')}, max({months.format('i')}), CAST(max(t) AS STRING), max(CAST(t AS STRING)) "
        + rows
    ).collect()
    assert row[0] == row[1] == 121
    assert row[2] == row[3]
