"""WITH RECURSIVE as a view: after every step the changes add up to Spark's answer, which computes all rounds anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from views.judge import RaisedError, judge
from views.random_queries import Generated
from views.test_shapes import tables

STEPS = 2

RECURSIVE = """
    WITH RECURSIVE r(k, n) AS (SELECT k, v FROM a WHERE v < 3 UNION ALL SELECT k, n + 1 FROM r WHERE n < 5)
    SELECT k, n, count(*) AS c FROM r GROUP BY k, n;

    WITH RECURSIVE r(w, path) AS (SELECT v, cast(v AS STRING) FROM a UNION ALL
        SELECT b.v, concat(path, '>', cast(b.v AS STRING)) FROM r JOIN b ON b.v - 1 = r.w WHERE r.w < 3)
    SELECT path, count(*) AS n FROM r GROUP BY path;

    WITH RECURSIVE r(w, x) AS (SELECT v, x FROM a UNION ALL
        SELECT DISTINCT r.w + 1, b.x + r.x FROM r JOIN b ON b.v = r.w WHERE r.w < 4)
    SELECT w, sum(x) AS s FROM r GROUP BY w;

    WITH RECURSIVE r(w) AS (SELECT v FROM a UNION ALL
        SELECT x.w + 1 FROM r x JOIN r y ON x.w = y.w WHERE x.w BETWEEN 0 AND 2)
    SELECT w, count(*) AS n FROM r GROUP BY w;

    WITH RECURSIVE r(w) AS (SELECT v FROM a UNION ALL
        SELECT r.w + 1 FROM r WHERE r.w < 4 AND NOT EXISTS (SELECT 1 FROM b WHERE b.v = r.w))
    SELECT w FROM r;

    WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4)
    SELECT n, a.k FROM r JOIN a ON a.v = n;

    WITH RECURSIVE r(w, s, f) AS (SELECT v, 'x', x FROM a UNION ALL
        SELECT w + 1, CASE WHEN w > 2 THEN NULL WHEN w = 1 THEN 'one' ELSE coalesce(s, 'none') END, least(w, 2) - f * 2
        FROM r WHERE w IN (1, 2, 3, 11, 12, 13, 14, 15, 16, 17, 18)
            OR s IS NULL AND w < 5 AND if(w = 0, f > 1, f <= 9))
    SELECT w, s, f FROM r;

    WITH RECURSIVE r(w, path) AS (SELECT v, array(v) FROM a WHERE v > 1 UNION ALL
        SELECT b.v, concat(r.path, array(b.v)) FROM r JOIN b ON b.x = r.w WHERE NOT array_contains(r.path, b.v))
    SELECT path, count(*) AS n FROM r GROUP BY path
"""


def test_changes_add_up_to_the_answer_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    queries = RECURSIVE.split(";")
    assert judge(spark, Generated(tables(STEPS), queries), tmp_path / "case") == STEPS * len(queries)


LEVELS = """
    WITH RECURSIVE r(n) MAX RECURSION LEVEL {level} AS (SELECT {first} UNION ALL SELECT n + 1 FROM r WHERE n < 5)
    SELECT n FROM r
"""


def test_the_levels_that_spark_allows_are_allowed(spark: SparkSession, tmp_path: Path) -> None:
    """Each level has one number, from 1 to 5."""
    of_table = {level: LEVELS.format(level=level, first="v - v + 1 FROM a WHERE v IS NOT NULL") for level in (4, 5)}
    assert spark.sql(LEVELS.format(level=5, first="1")).count() == 5
    assert judge(spark, Generated(tables(STEPS), [of_table[5]]), tmp_path / "enough") == STEPS
    with pytest.raises(Py4JJavaError, match="RECURSION_LEVEL_LIMIT_EXCEEDED"):
        spark.sql(LEVELS.format(level=4, first="1")).collect()
    with pytest.raises(RaisedError, match="LOOP_TOO_LONG"):
        judge(spark, Generated(tables(STEPS), [of_table[4]]), tmp_path / "too-few")
