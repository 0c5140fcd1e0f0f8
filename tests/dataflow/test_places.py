"""Each sink of a program has a place of its own."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.api.dataflow import Dataflow
from boatlift.dataflow import plan
from support.any_connector import ANY


@pytest.mark.parametrize(
    ("make", "place"),
    [
        (lambda here: (bl.parquet(here / "out"), bl.parquet(here / "x" / ".." / "out", key=["k"])), "folder {}/out"),
        (lambda here: (bl.parquet(here / "out"), bl.parquet(here / "link" / "out")), "folder {}/out"),
        (
            lambda here: (
                bl.sqlite(here / "a.db", table="totals", key=["k"]),
                bl.sqlite(here / "a.db", table="Totals", key=["j"]),
            ),
            "table totals of {}/a.db",
        ),
        (
            lambda here: (bl.kafka.sink("a:9092,b:9092", "rows"), bl.kafka.sink("B:9092", "rows", key="k")),
            "topic rows at b:9092",
        ),
        (
            lambda here: (bl.kafka.sink("a:9092", "rows"), bl.kafka.sink("a:9092", "more", ledger="rows.ledger")),
            "topic rows.ledger at a:9092",
        ),
    ],
    ids=["folder", "folder behind a link", "table", "topic", "ledger"],
)
def test_two_sinks_of_one_place_are_refused(tmp_path: Path, make: Callable[[Path], Any], place: str) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    one, other = make(tmp_path)
    rows.sink("out", one)
    rows.transform("t", lambda df: df).sink("copy", other)
    said = f"[DUPLICATE_PLACE] the sinks out and copy both write to {place.format(tmp_path)}: give each a place"
    with pytest.raises(bl.InvalidError, match=re.escape(said)):
        plan(flow)


def test_sinks_of_different_places_go_together(tmp_path: Path) -> None:
    flow = Dataflow("flow")
    rows = flow.source("rows", ANY)
    for name in ("one", "two"):
        rows.sink(f"folder-{name}", bl.parquet(tmp_path / name))
        rows.sink(f"table-{name}", bl.sqlite(tmp_path / "a.db", table=name, key=["k"]))
        rows.sink(f"database-{name}", bl.sqlite(tmp_path / f"{name}.db", table="t", key=["k"]))
        rows.sink(f"topic-{name}", bl.kafka.sink("a:9092", name))
        rows.sink(f"cluster-{name}", bl.kafka.sink(f"{name}:9092", "rows"))
    assert len(plan(flow).sinks) == 10
