"""How `boatlift plan` prints the options of a processor."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.console.plan import show_plan


@pytest.mark.usefixtures("spark")
def test_the_tables_of_a_lookup_are_words_and_no_python(capsys: pytest.CaptureFixture[str]) -> None:
    flow = bl.Dataflow("shop")
    sales = flow.source("sales", bl.generator({"item": "id % 3", "price": "id"}, rows_per_step=10, steps=1))
    dear = sales.group_by("item").agg("dear", F.max("price").alias("most"))
    sales.lookup("priced", now=dear.by("item")).sink("out", bl.stdout())
    show_plan(flow, as_json=False)
    assert "tables: now (reads dear, keys item)" in " ".join(capsys.readouterr().out.split())
