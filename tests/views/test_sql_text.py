"""What is read from the text of SQL: the streams in it, and the views of a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import boatlift as bl
from boatlift.api.sql_text import is_table_in, views_of


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM orders",
        "select * from `orders` o where x = 'a'",
        "SELECT * FROM items, orders",
        "SELECT * FROM items i JOIN\n  orders o ON i.id = o.id",
        "SELECT * FROM items WHERE id IN (SELECT id FROM orders)",
        "WITH big AS (SELECT * FROM Orders WHERE v > 3) SELECT * FROM big",
        "TABLE orders",
        "SELECT * FROM (orders CROSS JOIN items)",
        "SELECT * FROM (SELECT k FROM items WHERE k > 1 GROUP BY k HAVING max(v) > 1) a RIGHT JOIN orders b ON a.k=b.k",
        "SELECT * FROM (SELECT k FROM items WHERE k > 1) a, orders",
        "SELECT * FROM items a JOIN items b ON a.k = b.k, orders c",
        "SELECT * FROM items, LATERAL (SELECT max(v) FROM orders WHERE k = items.k)",
        "SELECT k, (SELECT max(v) FROM orders) AS m FROM items",
        "SELECT * FROM items WHERE EXISTS (FROM orders SELECT 1)",
        "SELECT k, extract(YEAR FROM at) AS y FROM orders",
        "SELECT * FROM items WHERE k IN (WITH c AS (SELECT 1) FROM orders SELECT k)",
        "SELECT * FROM items sort, orders",
    ],
)
def test_a_stream_is_found_in_the_place_of_a_table(query: str) -> None:
    assert is_table_in(query, "orders")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT orders FROM items",
        "SELECT a, orders FROM items",
        "SELECT * FROM items -- , orders",
        "SELECT * FROM items WHERE name = 'x, orders'",
        "SELECT * FROM orders_of_today",
        "SELECT * FROM shop.orders",
        "SELECT a FROM items ORDER BY a, orders",
        "SELECT extract(YEAR FROM orders) AS y, trim(BOTH ' ' FROM orders) FROM items",
        "SELECT * FROM items a JOIN items b ON a.k IS NOT DISTINCT FROM orders AND coalesce(a.k, orders) > 1",
        "SELECT f(a, orders), g(x) OVER (PARTITION BY a, orders) FROM items",
    ],
)
def test_other_words_are_no_streams(query: str) -> None:
    assert not is_table_in(query, "orders")


def test_a_stream_may_have_the_name_of_a_word_of_sql() -> None:
    assert is_table_in("SELECT * FROM items JOIN sort ON items.k = sort.k", "sort")


def test_a_file_has_views_in_its_order(tmp_path: Path) -> None:
    file = tmp_path / "views.sql"
    file.write_text(
        "-- a comment; with a semicolon\nCREATE VIEW b AS SELECT ';' AS x, '--no' AS y FROM a;\n"
        "create or replace temporary view `c` as /* here; too */ select 1 from b\n;\n",
        encoding="utf-8",
    )
    assert views_of(file) == {"b": "SELECT ';' AS x, '--no' AS y FROM a", "c": "select 1 from b"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DROP VIEW a;", "a statement that is no CREATE VIEW … AS: DROP VIEW a"),
        ("CREATE VIEW a AS SELECT 1 FROM b; CREATE VIEW a AS SELECT 2 FROM b", "two views a"),
        ("-- nothing\n", "has no CREATE VIEW … AS"),
    ],
)
def test_a_file_of_something_else_is_refused(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "views.sql"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(bl.InvalidError, match=says):
        views_of(file)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_VIEW\] cannot read .*views.sql"):
        bl.Dataflow("f").sql_file(tmp_path / "views.sql")
