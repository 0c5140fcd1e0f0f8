"""Bad rows that are set aside: each row is taken by a step or kept in the store, once, whatever dies."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.runtime.inspect.contents import rows_set_aside
from boatlift.spark.jobs import set_aside
from boatlift.storage.local import LocalStore
from boatlift.storage.verify import verify
from support.commands import boatlift
from support.crash.dying import DiesError, dying_at
from support.kafka import new_topic, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

pytestmark = pytest.mark.spark

FILES = 6
HERE = Path()
KINDS = ["csv", "jsonl", "json"]
MODULE = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("aside")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k STRING, v INT"))
rows.group_by("k").agg("sums", F.sum("v").alias("total")).sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rows").mkdir()


def write(kind: str, number: int, bad: tuple[str, ...] = ("many",)) -> None:
    fields = [("a", str(number)), ("b", "1"), *(("b", value) for value in bad), ("c", "2")]
    if kind == "csv":
        text = "\n".join(["k,v", *(f"{k},{v}" for k, v in fields)])
    else:
        objects = [f'{{"k": "{k}", "v": {v if v.isdecimal() else json.dumps(v)}}}' for k, v in fields]
        text = f"[{', '.join(objects)}]" if kind == "json" else "\n".join(objects)
    Path("rows", f"{number:03d}.{kind}").write_text(text + "\n")


def write_all(kind: str) -> None:
    """Of each file but the first the third row does not fit."""
    for number in range(FILES):
        write(kind, number, ("many",) if number else ())


def line(kind: str) -> int:
    return 4 if kind == "csv" else 3


def source_of(kind: str) -> Any:
    return bl.files(f"rows/*.{kind}", schema="k STRING, v INT", **({"multi_line": True} if kind == "json" else {}))


def sums(kind: str) -> bl.Dataflow:
    flow = bl.Dataflow("aside")
    rows = flow.source("rows", source_of(kind))
    summed = rows.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=3))
    summed.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    return flow


def held(query: str = "SELECT k, total FROM sums") -> dict[str, int]:
    with closing(sqlite3.connect("out.db")) as database:
        return dict(database.execute(query))


def kept() -> list[tuple[str, int, str]]:
    return [(row.source, row.step, row.place) for row in rows_set_aside(Path("store"))]


def run(spark: SparkSession, flow: bl.Dataflow, **options: Any) -> None:
    bl.run(flow, "store", available_now=True, spark=spark, **options)


def right(kind: str) -> None:
    assert held() == {"a": sum(range(FILES)), "b": FILES, "c": 2 * FILES}
    assert kept() == [("rows", n, f"{n:03d}.{kind}:{line(kind)}") for n in range(1, FILES)]
    assert not list(verify(LocalStore.open(Path("store"), create=False)))


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_is_taken_or_kept_and_later_runs_know(spark: SparkSession, kind: str) -> None:
    write_all(kind)
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]") as raised:
        run(spark, sums(kind))
    assert "--set-aside rows keeps this and every other bad row" in str(raised.value)
    assert f"--skip rows:001.{kind}:{line(kind)} this one alone" in str(raised.value)
    run(spark, sums(kind), set_aside=["rows"])
    right(kind)
    for row in rows_set_aside(Path("store")):
        dead_letter = json.loads(row.dead_letter)
        assert dead_letter["reason"].startswith("[BAD_ROW] ")
        assert "many" in dead_letter["text"]
    write(kind, FILES, ("more", "most"))
    run(spark, sums(kind))
    assert held()["a"] == sum(range(FILES + 1))
    assert len(kept()) == FILES - 1 + 2


@pytest.mark.parametrize("at", [("step", "sums", 1), ("commit", "out", 2), ("checkpoint", "sums", 2)])
def test_what_dies_gives_the_same_again(spark: SparkSession, at: tuple[str, str, int]) -> None:
    write_all("csv")
    with pytest.raises(DiesError):
        run(spark, sums("csv"), set_aside=["rows"], on_progress=dying_at(*at))
    run(spark, sums("csv"))
    right("csv")


@pytest.mark.parametrize("before", [True, False])
def test_a_death_beside_the_act_keeps_each_row_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    write_all("csv")
    keep = set_aside.keep_bad_rows

    def dies(*arguments: Any) -> bool:
        if not before:
            keep(*arguments)
        raise DiesError

    with monkeypatch.context() as patch:
        patch.setattr(set_aside, "keep_bad_rows", dies)
        with pytest.raises(DiesError):
            run(spark, sums("csv"), set_aside=["rows"])
    assert len(kept()) == (0 if before else 1)
    run(spark, sums("csv"))
    right("csv")


def test_a_row_alone_is_set_aside_and_the_next_one_stops(spark: SparkSession) -> None:
    write_all("csv")
    run_of = sums("csv")
    with pytest.raises(bl.DataError, match=r"--skip rows:002.csv:4 this one alone"):
        run(spark, run_of, skip=[("rows", "001.csv:4")])
    assert kept() == [("rows", 1, "001.csv:4")]
    with pytest.raises(bl.DataError, match=r"--skip rows:003.csv:4 this one alone"):
        run(spark, sums("csv"), skip=[("rows", "002.csv:4")])
    run(spark, sums("csv"), set_aside=["rows"])
    right("csv")


def test_two_bad_rows_of_a_step_need_two_decisions(spark: SparkSession) -> None:
    write("csv", 0, ("many", "more"))
    with pytest.raises(bl.DataError, match=r"--skip rows:000.csv:5 this one alone"):
        run(spark, sums("csv"), skip=[("rows", "000.csv:4")])
    assert not kept()
    run(spark, sums("csv"), skip=[("rows", "000.csv:5")])
    assert [place for _, _, place in kept()] == ["000.csv:4", "000.csv:5"]


def test_all_kinds_of_readers_go_on(spark: SparkSession) -> None:
    """A view, a lookup, a batch, a processor and a transform read the same rows; each bad row is kept once."""
    write_all("csv")
    flow = bl.Dataflow("aside")
    rows = flow.source("rows", source_of("csv"))
    flow.sql("view", "SELECT k, sum(v) AS total, count(*) AS n FROM rows GROUP BY k").sink(
        "viewed", bl.sqlite("out.db", table="viewed", key=["k"])
    )
    rows.transform("all", lambda df: df.select("k", "v")).sink("copied", bl.parquet("copied"))
    rows.recompute("fit", lambda df: df.groupBy("k").count(), over="batch", policy=bl.Batch(epochs=2)).sink(
        "fitted", bl.parquet("fitted")
    )
    summed = rows.group_by("k").agg("sums", F.sum("v").alias("total"))
    summed.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
    asked = rows.lookup("asked", live=summed.by("k"))
    asked.sink("told", bl.parquet("told"))
    run(spark, flow, set_aside=["rows"])
    right("csv")
    assert held("SELECT k, total FROM viewed") == held()
    assert spark.read.parquet(str(Path("copied").resolve())).count() == 3 * FILES
    assert spark.read.parquet(str(Path("told").resolve())).count() == 3 * FILES


def test_offsets_of_a_topic(spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    topic = new_topic(kafka_broker)
    send(kafka_broker, topic, [b'{"k": "a", "v": 1}', b'{"k": "a", "v": "x"}', b"\xff", b'{"k": "b", "v": 2}'])

    def flow() -> bl.Dataflow:
        made = bl.Dataflow("aside")
        source = bl.kafka.source(kafka_broker.bootstrap, topic=topic, format="json", schema="k STRING, v INT")
        summed = made.source("rows", source).group_by("k").agg("sums", F.sum("v").alias("total"))
        summed.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
        return made

    with pytest.raises(bl.DataError, match=rf"--skip rows:{topic}/0:1 this one alone"):
        run(spark, flow())
    with pytest.raises(bl.DataError, match=rf"--skip rows:{topic}/0:2 this one alone"):
        run(spark, flow(), skip=[("rows", f"{topic}/0:1")])
    run(spark, flow(), skip=[("rows", f"{topic}/0:2")])
    assert held() == {"a": 1, "b": 2}
    dead_letters = [json.loads(row.dead_letter) for row in rows_set_aside(Path("store"))]
    assert [(each["offset"], each["value"]) for each in dead_letters] == [
        (1, '{"k": "a", "v": "x"}'),
        (2, "base64:/w=="),
    ]


def test_a_step_of_other_rows_is_not_set_aside(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(set_aside, "MOST", 2)
    write("csv", 0, ("a", "b", "c"))
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\].*more than 2 bad rows"):
        run(spark, sums("csv"), set_aside=["rows"])
    assert not kept()


def test_the_advice_of_the_command_works(spark: SparkSession) -> None:
    del spark  # only so that this file is one of the tests on Spark
    Path("aside.py").write_text(MODULE)
    write_all("csv")
    failed = boatlift(HERE, "run", "aside:flow", "--store", "store", "--available-now")
    assert failed.returncode == 5, failed.stderr
    (whole, alone) = re.search(
        r"(boatlift run \S+ --store \S+ --set-aside rows) keeps .*, (--skip \S+) this one alone", failed.stderr
    ).groups()  # type: ignore[union-attr]
    looked = re.search(r"boatlift (look \S+ --store \S+ --step \S+) shows its rows", failed.stderr)
    assert looked is not None, failed.stderr
    shown = boatlift(HERE, *shlex.split(looked[1]))
    assert shown.returncode == 0, shown.stderr
    assert "bad rows:" in shown.stdout
    assert "many" in shown.stdout
    one = boatlift(HERE, "run", "aside:flow", "--store", "store", "--available-now", *shlex.split(alone))
    assert one.returncode == 5, one.stderr
    assert "rows:002.csv:4" in one.stderr
    done = boatlift(HERE, *shlex.split(whole)[1:], "--available-now")
    assert done.returncode == 0, done.stderr
    right("csv")
    table = boatlift(HERE, "bad-rows", "--store", "store")
    assert table.returncode == 0, table.stderr
    assert "001.csv:4" in table.stdout
    exported = [
        json.loads(each) for each in boatlift(HERE, "bad-rows", "--store", "store", "--json").stdout.splitlines()
    ]
    assert [each["place"] for each in exported] == [f"{n:03d}.csv:4" for n in range(1, FILES)]
    assert exported[0]["letter"]["text"] == "b,many"


def test_a_file_that_was_corrected_in_place_is_put_back_as_advised_and_its_row_set_aside(spark: SparkSession) -> None:
    write_all("csv")
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\].*corrected, the file needs a new name"):
        run(spark, sums("csv"))
    bad = Path("rows/001.csv")
    original = bad.read_text()
    bad.write_text(original.replace("many", "1"))
    with pytest.raises(bl.DataError, match=r"\[INPUT_CHANGED\].*001\.csv.*put the original back"):
        run(spark, sums("csv"), set_aside=["rows"])
    bad.write_text(original)
    run(spark, sums("csv"), set_aside=["rows"])
    right("csv")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: bl.files("rows/*.parquet", schema="k STRING, v INT"), "bad rows of rows cannot be set aside"),
        (lambda: bl.push("k STRING, v INT"), "rows refuses bad rows as they are pushed"),
        (lambda: source_of("csv"), "aside has no source other: choose from rows"),
    ],
)
def test_what_has_no_bad_rows_is_refused(spark: SparkSession, made: Any, said: str) -> None:
    flow = bl.Dataflow("aside")
    flow.source("rows", made()).sink("out", bl.parquet("out"))
    with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] {said}"):
        run(spark, flow, set_aside=["other" if "other" in said else "rows"])
