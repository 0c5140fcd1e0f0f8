"""The code of the pages does what they say, as it is printed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.api import named
from boatlift.console.plan import show_plan
from boatlift.dataflow.processors import SinkSpec
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.testing.object_server import ObjectServer
from support.buckets import bucket_of
from support.commands import exit_status
from support.pages import TEXT, block_of_file, blocks, built, flights_of
from support.push.receiver import Receiver, receiving
from support.reader import cut_year

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from boatlift.testing.kafka_broker import KafkaBroker

FUNCTIONS, JOINS = "Call your own functions", "Joins, batches and merges"
AGGREGATES, PARTIALS = "Aggregates", "Partials of each stream of a union"
PROCESSORS = "State and timers of your own"
EVENT_TIME, LOOPS = "Late rows, windows that end, rows that leave", "Loops"
DELIVERIES, BAD_ROWS = "Deliver rows at least once", "Bad rows"
TOGETHER, VIEWS = "Sinks that are shown together", "Views: a query, kept up to date"
OPERATE = "Operate it"
COMMANDS = re.findall(r"^\| `(boatlift [^`…]+)` \|", TEXT, re.MULTILINE)  # with `…` it is a part of a command


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The flights of a year, a file a week."""
    return cut_year(tmp_path_factory.mktemp("clone"))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Changes to a folder whose `flights.py` is the module of that name."""

    def go(folder: Path) -> None:
        sys.modules.pop("flights", None)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))

    yield go
    sys.modules.pop("flights", None)


def planned(flow: bl.Dataflow, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Plan a flow; what nothing reads gets a sink first, since a fragment of a page may end there."""
    read = {upstream for processor in flow.processors.values() for upstream in processor.reads}
    for name, processor in list(flow.processors.items()):
        if name not in read and not isinstance(processor, SinkSpec):
            bl.Stream(flow, name).sink(f"all_{name}", bl.parquet(f"all_{name}"))
    show_plan(flow, as_json=True)
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def weeks(year: Path, tmp_path: Path, place: Callable[[Path], None]) -> Path:
    """An empty folder but for the first nine weeks of flights."""
    (tmp_path / "weeks").mkdir()
    for week in sorted(year.iterdir())[:9]:
        shutil.copy(week, tmp_path / "weeks")
    place(tmp_path)
    return tmp_path


def test_reading_the_results_gives_what_is_said(
    weeks: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    keeping, asking = blocks("Ask a dataflow", "python")
    program = built()
    exec(keeping.text, program)
    flow = program["flow"]
    bl.run(flow, "out/store", available_now=True, spark=spark)
    (reading,) = blocks("Read the results", "python")
    names: dict[str, Any] = {"F": F, "spark": spark}
    shown = []
    # The JVM of these tests was started in another folder than a reader's.
    for statement in ast.parse(reading.text.replace('"out/history"', repr(str(weeks / "out" / "history")))).body:
        if isinstance(statement, ast.Expr):
            shown.append(eval(compile(ast.Expression(statement.value), "a page", "eval"), names).collect())
        else:
            exec(compile(ast.Module([statement], []), "a page", "exec"), names)
    now, total, ever = shown
    with closing(sqlite3.connect("out/answers.db")) as database:
        answers = database.execute("SELECT * FROM delays").fetchall()
    assert sorted(map(tuple, now)) == sorted(answers)
    assert total == [(sum(row[2] for row in answers),)]
    assert len(ever) > len(now)
    names |= {"bl": bl, "flow": flow}
    (command,) = blocks("Ask a dataflow", "sh")
    exec(asking.text, names)
    asked = [(row["dest"], row["flights"]) for row in names["answer"].rows.to_pylist()]
    assert asked == sorted(((row[1], row[2]) for row in answers if row[0] == "JFK"), key=lambda each: -each[1])[:3]
    assert names["answer"].steps.keys() == {"delays"}
    kept = bl.sql(flow, "out/store", "SELECT min(arr_delay) AS least FROM kept", spark=spark).rows.to_pylist()
    assert kept[0]["least"] > 300
    (seeing,) = blocks("Was it seen?", "python")
    first = min((weeks / "weeks").iterdir()).name
    assert all(eval(seeing.text.replace("week-01.csv", first), names).values())
    monkeypatch.setattr(named, "check_flow", lambda _: None)
    monkeypatch.setattr(named, "load_flow", lambda *_: flow)
    assert exit_status(shlex.split(command.text)[1:]) == 0
    printed = capsys.readouterr().out
    assert all(origin in printed for origin in {row[0] for row in answers})


@pytest.mark.kafka
@pytest.mark.usefixtures("kafka_broker")  # its jars
def test_the_broker_to_try_kafka_with_listens_where_it_says() -> None:
    (block,) = [each for each in blocks() if each.text.startswith('python -c "from boatlift.testing')]
    command = [sys.executable, *shlex.split(block.text)[1:]]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env={**os.environ, "PYTHONUNBUFFERED": "1"}, text=True, **pipes) as broker:
        assert broker.stdout is not None
        assert broker.stdin is not None
        host, _, port = broker.stdout.readline().strip().rpartition(":")
        socket.create_connection((host, int(port)), 10).close()
        broker.stdin.write("\n")
    assert broker.returncode == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), 10)


@pytest.mark.usefixtures("spark")
def test_the_kafka_example_takes_messages_and_gives_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka_broker: KafkaBroker
) -> None:
    from support.kafka import messages_of, new_topic, send

    monkeypatch.chdir(tmp_path)
    text = block_of_file("delays.py").text
    flights, delays = new_topic(kafka_broker), new_topic(kafka_broker)
    for printed, topic in (('topic="flights"', f'topic="{flights}"'), ('"delays", key', f'"{delays}", key')):
        assert printed in text
        text = text.replace(printed, topic)
    names: dict[str, Any] = {}
    exec(compile(text.replace("localhost:9092", kafka_broker.bootstrap), "a page", "exec"), names)
    rows = [{"origin": "JFK", "dest": "LAX", "arr_delay": delay} for delay in (1, None, 4)]
    send(kafka_broker, flights, [json.dumps(row).encode() for row in rows])
    bl.run(names["flow"], "store", available_now=True)
    (message,) = messages_of(kafka_broker, delays)
    assert json.loads(message.value()) == {"origin": "JFK", "dest": "LAX", "delay": 2.5}


def test_joins_and_functions_run_and_give_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "weeks").iterdir())[2:]:
        week.unlink()
    (weeks / "queries").mkdir()
    (weeks / "queries" / "1.csv").write_text("id,origin,dest\n1,JFK,LAX\n2,nowhere,LAX\n")
    functions, (joins,) = blocks(FUNCTIONS, "python"), blocks(JOINS, "python")
    flow = built(*(block.text for block in functions), joins.text)["flow"]
    bl.run(flow, "out/store", available_now=True, spark=spark)
    assert spark.read.parquet(str(weeks / "out" / "legs")).where("route = 'JFK-LAX'").count() > 0
    assert spark.read.parquet(str(weeks / "out" / "fares")).select("price").distinct().collect() == [(3.0,)]
    with closing(sqlite3.connect("out/answers.db")) as database:
        replies = database.execute("SELECT * FROM replies ORDER BY id")
        assert [column[0] for column in replies.description] == ["id", "origin", "dest", "live_delay", "fit_expected"]
        assert [row[:3] for row in replies] == [(1, "JFK", "LAX"), (2, "nowhere", "LAX")]


def test_aggregates_give_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    (aggregates,), (partials,) = blocks(AGGREGATES, "python"), blocks(PARTIALS, "python")
    flow = built(f"{aggregates.text}\n{partials.text}")["flow"]
    bl.run(flow, "out/store", available_now=True, spark=spark)
    totals = spark.read.parquet(str(weeks / "out" / "total"))
    (held,) = totals.groupBy("flights", "minutes").agg(F.sum("_weight").alias("weight")).where("weight > 0").collect()
    weekly = spark.read.parquet(str(weeks / "out" / "weekly"))
    assert held["weight"] == 1
    assert weekly.agg(F.sum("flights")).collect()[0][0] == held["flights"]
    assert weekly.count() == 3 * weekly.select("origin").distinct().count()
    with closing(sqlite3.connect("out/answers.db")) as database:
        sizes = dict(database.execute("SELECT flights, routes FROM sizes"))
        routes = [count for (count,) in database.execute("SELECT flights FROM delays")]
    assert sizes == {size: routes.count(size) for size in routes}
    assert sum(size * count for size, count in sizes.items()) == held["flights"]
    newest: dict[str, tuple[int, int]] = {}
    for step in sorted((weeks / "out" / "arrivals").glob("*.parquet")):
        newest |= {row["dest"]: (row["minutes"] or 0, row["flights"]) for row in pq.read_table(step).to_pylist()}
    assert (held["minutes"], held["flights"]) == tuple(map(sum, zip(*newest.values(), strict=True)))


def delivered(weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str], page: str) -> tuple[Receiver, str]:
    """Run the program of a page over two weeks; return the receiver of its rows, and the plan in words."""
    for week in sorted((weeks / "weeks").iterdir())[2:]:
        week.unlink()
    (program,) = blocks(page, "python")
    flow = built(program.text)["flow"]
    with receiving(8099) as desk:
        bl.run(flow, "out/store", available_now=True, spark=spark)
    show_plan(flow, as_json=False)
    return desk, " ".join(capsys.readouterr().out.split())


def test_late_flights_are_delivered(weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    desk, said = delivered(weeks, spark, capsys, DELIVERIES)
    assert "log (the step under way may come again after a failure)" in said
    assert "desk (exactly once if the receiver ignores an Idempotency-Key that it knows)" in said
    flown = spark.read.csv(str(weeks / "weeks"), header=True, nullValue="NA", inferSchema=True)
    late = sorted((row["origin"], row["arr_delay"]) for row in flown.where("arr_delay > 300").collect())
    assert late
    logged = [line.split(",") for line in Path("out/late.log").read_text().splitlines()]
    assert sorted((origin, int(delay)) for _, origin, delay in logged) == late
    assert {int(step) for step, *_ in logged} == {0, 1}
    assert sorted((row["origin"], row["arr_delay"]) for row in desk.rows()) == late


def test_late_flights_are_posted_row_by_row(
    weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    desk, said = delivered(weeks, spark, capsys, "Rows that the receiver recognises")
    assert "Wait for nothing: desk" in said
    assert "those of 256 steps at most" in said
    rows = desk.rows()
    assert rows
    assert len({key for key, _ in desk.requests}) == len({row["id"] for row in rows}) == len(desk.requests)


def test_bad_rows_go_where_is_said(weeks: Path, spark: SparkSession) -> None:
    (bad_rows,) = blocks(BAD_ROWS, "python")
    (weeks / "trips").mkdir()
    (weeks / "trips" / "1.csv").write_text("id,miles\n1,200\n2,far\n,7\n3,\n")
    names: dict[str, Any] = {"bl": bl, "flow": bl.Dataflow("pages")}
    exec(compile(bad_rows.text, "a page", "exec"), names)
    bl.run(names["flow"], "store", available_now=True, spark=spark)
    assert sorted(pq.read_table("trips_taken")["id"].to_pylist()) == [1, 3]
    dead_letters = sorted(pq.read_table("bad_trips").to_pylist(), key=lambda row: row["offset"])
    assert [(row["file"], row["offset"], row["text"]) for row in dead_letters] == [
        ("1.csv", 15, "2,far"),
        ("1.csv", 21, ",7"),
    ]
    assert [list(row) for row in dead_letters] == [["file", "offset", "text", "reason"]] * 2
    assert all(row["reason"].startswith("[BAD_ROW] ") for row in dead_letters)


def test_the_processor_gives_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    (processors,) = blocks(PROCESSORS, "python")
    bl.run(built(processors.text)["flow"], "out/store", available_now=True, spark=spark)
    found = {(row["tailnum"], row["at"]) for row in spark.read.parquet(str(weeks / "out" / "streaks")).collect()}
    flown = spark.read.csv(str(weeks / "weeks"), header=True, nullValue="NA", inferSchema=True).collect()
    late: dict[Any, int] = {}
    expected = set()
    for row in sorted(flown, key=lambda row: (row["time_hour"], row["sched_dep_time"])):
        late[row["tailnum"]] = late.get(row["tailnum"], 0) + 1 if (row["arr_delay"] or 0) > 60 else 0
        if late[row["tailnum"]] == 3:
            expected.add((row["tailnum"], row["time_hour"]))
    assert len(found) > 10
    assert {plane for plane, _ in found} == {plane for plane, _ in expected}
    assert len(found) == len(expected)


def test_windows_that_end_give_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    (event_time,) = blocks(EVENT_TIME, "python")
    bl.run(built(event_time.text)["flow"], "out/store", available_now=True, spark=spark)
    flown = spark.read.csv(str(weeks / "weeks"), header=True, nullValue="NA").selectExpr(
        "origin", "to_timestamp(time_hour) AS at"
    )
    last = flown.agg(F.max("at") - F.expr("INTERVAL 2 HOURS")).first()
    assert last is not None
    expected = flown.groupBy(F.window("at", "1 hour").alias("w"), "origin").count().where(F.col("w.end") <= last[0])
    found = spark.read.parquet(str(weeks / "out" / "hours")).collect()
    assert Counter((row["window_start"], row["origin"], row["flights"]) for row in found) == Counter(
        (row["w"]["start"], row["origin"], row["count"]) for row in expected.collect()
    )
    assert len(found) > 100


def test_sinks_are_shown_together_as_is_said(
    weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    for week in sorted((weeks / "weeks").iterdir())[2:]:
        week.unlink()
    (added,), (query,) = blocks(TOGETHER, "python"), blocks(TOGETHER, "sql")
    flow = built(added.text)["flow"]
    bl.run(flow, "out/store", available_now=True, spark=spark)
    with closing(sqlite3.connect("out/answers.db")) as database:
        one, other = database.execute(query.text).fetchone()
    assert one == other > 1000
    assert bl.status("out/store").together[0].held_by == []
    show_plan(flow, as_json=False)
    assert "Shown together: answers and origins, a step of all" in " ".join(capsys.readouterr().out.split())


@pytest.mark.kafka
def test_topics_are_shown_together_as_is_said(weeks: Path, spark: SparkSession, kafka_broker: KafkaBroker) -> None:
    from support.kafka import messages_of, new_topic

    for week in sorted((weeks / "weeks").iterdir())[2:]:
        week.unlink()
    (first,), (added,) = blocks(TOGETHER, "python"), blocks("Kafka topics", "python")
    text, topics = added.text.replace("localhost:9092", kafka_broker.bootstrap), {}
    for sink in ("origins", "rows"):
        topics[sink] = new_topic(kafka_broker)
        assert f'"{sink}", key' in text
        text = text.replace(f'"{sink}", key', f'"{topics[sink]}", key')
    bl.run(built(first.text.splitlines()[0], text)["flow"], "out/store", available_now=True, spark=spark)
    newest = {message.key(): message.value() for message in messages_of(kafka_broker, topics["origins"])}
    flown = len(messages_of(kafka_broker, topics["rows"]))
    assert sum(json.loads(value)["flights"] for value in newest.values() if value is not None) == flown > 1000


def test_the_loop_gives_what_is_said(weeks: Path, spark: SparkSession) -> None:
    """Each pair of airports has the fewest flights that lead from one to the other."""
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    (loop,) = blocks(LOOPS, "python")
    bl.run(built(loop.text)["flow"], "out/store", available_now=True, spark=spark)
    with closing(sqlite3.connect("out/hops.db")) as database:
        found = {(origin, dest): flights for origin, dest, flights in database.execute("SELECT * FROM hops")}
    flown = spark.read.csv(str(weeks / "weeks"), header=True, nullValue="NA").where("arr_delay IS NOT NULL")
    legs = {(row["origin"], row["dest"]) for row in flown.select("origin", "dest").distinct().collect()}
    legs |= {(dest, origin) for origin, dest in legs}
    expected = {}
    for start in {origin for origin, _ in legs}:
        far, edge, seen = 0, {start}, {start}
        while edge:
            far, edge = far + 1, {dest for origin, dest in legs if origin in edge} - seen
            expected |= {(start, airport): far for airport in edge}
            seen |= edge
    assert found == expected
    assert len(found) > 5000
    assert max(found.values()) == 4


def test_views_give_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "weeks").iterdir())[3:]:
        week.unlink()
    views, _ = blocks(VIEWS, "python")
    flow = built(views.text)["flow"]
    bl.run(flow, "out/store", available_now=True, spark=spark)
    with closing(sqlite3.connect("out/answers.db")) as database:
        ranking = database.execute("SELECT origin, dest, delay, place FROM worst ORDER BY origin, place").fetchall()
        delays = database.execute(
            "SELECT origin, dest, delay FROM delays WHERE flights >= 10 ORDER BY origin, delay DESC, dest"
        ).fetchall()
    expected = []
    for origin in sorted({row[0] for row in delays}):
        worst = [row for row in delays if row[0] == origin][:3]
        expected += [(*row, place) for place, row in enumerate(worst, 1)]
    assert ranking == expected
    competition = spark.read.parquet(str(weeks / "out" / "competition"))
    held = competition.groupBy("carrier", "flights_on_its_routes", "fastest").agg(F.sum("_weight").alias("weight"))
    rows = spark.read.csv(str(weeks / "weeks"), header=True, nullValue="NA", inferSchema=True)
    clean = rows.where("arr_delay IS NOT NULL").withColumn("speed", F.col("distance") / F.col("air_time"))
    routes = rows.select("origin", "dest", "carrier").distinct()
    batch = clean.drop("carrier").join(routes, ["origin", "dest"]).groupBy("carrier")
    wanted = batch.agg(F.count("*").alias("flights_on_its_routes"), F.max("speed").alias("fastest")).collect()
    assert sorted(map(tuple, held.where("weight <> 0").drop("weight").collect())) == sorted(map(tuple, wanted))


def test_rows_that_go_give_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.chdir(tmp_path)
    _, rows_that_go = blocks(VIEWS, "python")

    def after(step: int, prices: str, bookings: str) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        for folder, text in (("prices", prices), ("bookings", bookings)):
            Path(folder).mkdir(exist_ok=True)
            Path(folder, f"{step}.csv").write_text(text)
        flow = bl.Dataflow("shop")
        exec(compile(rows_that_go.text, "a page", "exec"), {"bl": bl, "flow": flow})
        bl.run(flow, "store", available_now=True, spark=spark)
        with closing(sqlite3.connect("shop.db")) as database:
            return (
                database.execute("SELECT item, price FROM dearest ORDER BY price DESC").fetchall(),
                database.execute("SELECT room, guests FROM occupied ORDER BY room").fetchall(),
            )

    header = "item,price,at,op\n"
    first = after(
        0, f"{header}a,5.0,2,U\nb,7.0,1,U\nc,3.0,1,U\na,9.0,1,U\n", "room,guest,weight\n1,x,1\n1,y,1\n2,z,1\n"
    )
    assert first == ([("b", 7.0), ("a", 5.0)], [("1", 2), ("2", 1)])
    second = after(1, f"{header}b,0.0,2,D\n", "room,guest,weight\n1,x,-1\n2,z,-1\n")
    assert second == ([("a", 5.0), ("c", 3.0)], [("1", 1)])
    with pytest.raises(bl.DataError, match=r"\[NEGATIVE_WEIGHT\] .* loses rows of {'room': '1'}"):
        after(2, header, "room,guest,weight\n1,y,-2\n")


@pytest.mark.usefixtures("spark")
def test_a_function_that_is_not_declared_is_refused_as_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    functions, _ = blocks(FUNCTIONS, "python")
    assert ", deterministic=True" in functions.text
    flow = built(functions.text, without=", deterministic=True")["flow"]
    said = re.search(r"`(\[NOT_DETERMINISTIC\] [^`…]+)", TEXT)
    with pytest.raises(bl.InvalidError, match=re.escape(said[1])):
        planned(flow, capsys)


def test_every_command_of_the_table_ends_well(
    weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    # With this policy every step stays on the record, so that there is one to look at.
    text = flights_of(2)
    assert "Lazy(every=20)" in text
    (weeks / "flights.py").write_text(text.replace("Lazy(every=20)", "Lazy(every=None)"), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile((weeks / "flights.py").read_text(), "flights.py", "exec"), names)
    header, *_ = (weeks / "weeks" / "week-01.csv").read_text(encoding="utf-8").splitlines()
    (weeks / "weeks" / "week-99.csv").write_text(f"{header}\n2013\n", encoding="utf-8")  # a bad row to be shown
    bl.run(names["flow"], "store", available_now=True, set_aside=["flights"], spark=spark)
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        # What is in brackets may be left out; p and q stand for names.
        for form in {re.sub(r" \[.*?\]", "", command), command.replace("[", "").replace("]", "")}:
            words = shlex.split(form.replace("p,q", "delays,answers"))[1:]
            for more in ([],) if "--json" in words else ([], ["--json"]):
                assert exit_status([*words, *more]) == 0, form
                assert capsys.readouterr().out, form


@pytest.mark.spark
def test_the_commands_for_a_cluster_run_one_after_the_other_on_one_store(weeks: Path) -> None:
    data = weeks / "weeks"
    _, second, *others = sorted(data.iterdir())
    second.rename(data / ".second")
    for week in others:
        week.unlink()
    (weeks / "flights.py").write_text(flights_of(2), encoding="utf-8")
    main = block_of_file("main.py").text
    assert '"/shared/store", spark' in main
    (weeks / "main.py").write_text(main.replace('"/shared/store", spark', '"store", available_now=True, spark'))
    run, submit = (block.text for block in blocks(OPERATE, ""))
    assert "/shared/store" in run
    binaries = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": binaries, "PYSPARK_PYTHON": sys.executable}
    # One machine stands for the cluster here: the cluster itself is the matter of tests/cluster.
    assert all("--master spark://host:7077" in command for command in (run, submit))
    first_run = run.replace("/shared/store", "store").strip() + " --available-now"
    for command in (
        first_run.replace("spark://host:7077", "local[2,2]"),
        submit.replace("spark://host:7077", "local[3,2]"),
    ):
        done = subprocess.run(
            ["sh", "-ec", command], cwd=weeks, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        if not second.exists():
            (data / ".second").rename(second)
    status = Log.open(LocalStore.open(weeks / "store", create=False), None)
    assert status.history.stopped
    assert len(list((weeks / "out" / "history").glob("*.parquet"))) == 2


@pytest.mark.spark
def test_a_store_in_a_bucket_goes_as_is_said(
    weeks: Path, spark: SparkSession, objects_for_tasks: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOATLIFT_SCRATCH", str(weeks / "scratch"))
    for week in sorted((weeks / "weeks").iterdir())[2:]:
        week.unlink()
    (weeks / "flights.py").write_text(flights_of(2), encoding="utf-8")
    page = [each for each in blocks() if each.page.stem == "object-store"]
    (commands,) = [each.text.replace("s3://bucket", "s3://boatlift") for each in page if each.language == "sh"]
    _, run, status = commands.strip().splitlines()
    binaries = f"{Path(sys.prefix, 'bin')}{os.pathsep}{os.environ['PATH']}"
    for command in (f"{run} --available-now", status):
        words = ["sh", "-ec", command]
        environment = {**os.environ, "PATH": binaries}
        done = subprocess.run(words, cwd=weeks, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "stopped cleanly" in done.stdout
    shutil.rmtree(weeks / "out")  # the sinks of that store; another one follows
    runs, sink, source = [each.text for each in page if each.language == "python"]
    names = {**built(), "bl": bl}
    exec(sink.replace("s3://bucket", f"s3://boatlift/{weeks.name}"), names)
    address = objects_for_tasks.environment["AWS_ENDPOINT_URL"]
    for number, line in enumerate(runs.strip().splitlines()):
        for said, here in (
            ("s3://bucket", f"s3://boatlift/{weeks.name}"),
            ("https://minio:9000", address),
            ("/mnt/nvme", str(weeks / "nvme")),
        ):
            line = line.replace(said, here)
        exec(f"{line[:-1]}, available_now=True, spark=spark)", {**names, "spark": spark})
        assert (weeks / "nvme").exists() == (number == 1)
    obstore.put(bucket_of(f"{weeks.name}/events"), "1.json", b'{"id": 7, "kind": "x"}')
    flow = bl.Dataflow("events")
    exec(source.replace("s3://bucket", f"s3://boatlift/{weeks.name}"), read := {"bl": bl, "flow": flow})
    read["events"].sink("kept", bl.parquet(weeks / "events"))
    bl.run(flow, weeks / "another store", available_now=True, spark=spark)
    assert pq.read_table(weeks / "events").to_pylist() == [{"id": 7, "kind": "x"}]
