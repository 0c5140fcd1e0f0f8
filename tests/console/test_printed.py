"""The text that commands print, and that JSON is the data as they are."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from rich.console import Console

import boatlift as bl
from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.console import tables
from boatlift.console.contents import (
    LINE,
    show_bad_rows,
    show_checkpoints,
    show_explanation,
    show_kept,
    show_log,
    show_status,
    show_verification,
)
from boatlift.console.plan import show_plan
from boatlift.dataflow import plan
from boatlift.errors import InvalidError
from boatlift.runtime.inspect.contents import checkpoints_of, kept_in, log_at, store_at
from boatlift.runtime.inspect.explanation import explanation_of
from boatlift.storage.log import Log, name_of
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedMessage, StepDigest
from boatlift.storage.records.payloads import RunsPayload, to_json
from boatlift.storage.records.records import Claim, SinkCommit
from connectors.conformance import context, put
from support.any_connector import ANY
from support.crash.data import make_data
from support.engine.hosts import crashed, open_store
from support.engine.memory_engine import PROGRAM, recorded
from support.engine.memory_flows import lookup
from support.worlds.facts import made, payload_with, run_of, saved, small_store
from support.worlds.logs import claimed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, g INT, v DOUBLE"


def test_json_is_the_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path)
    log = log_at(tmp_path)
    for show, data in (
        (
            lambda: show_status(tmp_path, as_json=True),
            {**bl.status(tmp_path).as_json(), "event_times": {}, "bad_rows": {}},
        ),
        (lambda: show_explanation(tmp_path, ["sums"], as_json=True), explanation_of(log, frozenset({"sums"}))),
        (lambda: show_kept(tmp_path, as_json=True), {"kept": kept_in(store_at(tmp_path), log)}),
        (lambda: show_checkpoints(tmp_path, as_json=True), {"checkpoints": checkpoints_of(log)}),
    ):
        show()
        assert json.loads(capsys.readouterr().out) == {"version": 1, **json.loads(msgspec.json.encode(data))}


def test_a_failure_is_explained_with_its_costs_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path)
    show_explanation(tmp_path, ["sums"], as_json=False)
    text = capsys.readouterr().out
    assert text.startswith("If sums failed now, as far as the log knows:\n")
    assert text.index("The cost of the rollback") < text.index("sums restores its checkpoint"), "the costs come first"
    assert "its checkpoint of steps 0…3" in text
    assert "sums restores its checkpoint of step 3, replays 4…6" in text
    assert "15.0" in text
    assert text.index("sums restores") < text.index("Kept state")


def test_a_failure_that_costs_nothing_has_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path).append([saved(6, run_of(b"state", "runs/2")), SinkCommit("totals", 6)])
    show_explanation(tmp_path, [], as_json=False)
    text = capsys.readouterr().out
    assert text.startswith("If everything failed now")
    assert "Nothing is executed again." in text


def test_explain_says_what_counts_as_a_step_that_is_executed_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed(tmp_path)
    show_explanation(tmp_path, [], as_json=False)
    text = capsys.readouterr().out
    assert "steps executed again" in text
    assert "Steps that are executed again are those that a processor has executed, as far as the log knows." in text


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    small_store(tmp_path / "store", stopped=True)
    sink = bl.parquet(tmp_path / "history")
    sink.open(context())
    put(sink, tmp_path / "history", 0)
    return sink


def test_a_store_and_sinks_that_are_whole_verify(
    tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]
) -> None:
    never_written = bl.sqlite(tmp_path / "out.db", table="t", key=["k"])
    assert show_verification(tmp_path / "store", {"history": sink, "answers": never_written}, as_json=False) == 0
    assert capsys.readouterr().out == "everything verifies: the store, sink answers, sink history\n"
    assert show_verification(tmp_path / "store", {}, as_json=False) == 0
    assert capsys.readouterr().out == "everything verifies: the store\n"


def test_damage_is_printed_in_sentences_about_store_and_sinks(
    tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]
) -> None:
    group, step = tmp_path / "store" / name_of(5), tmp_path / "history" / "step-000000000000.parquet"
    for path in (group, step):
        path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / "store" / "README.txt").write_text("by hand")
    assert show_verification(tmp_path / "store", {"history": sink}, as_json=False) == 5
    of_store, of_sink, sum_up = capsys.readouterr().out.splitlines()
    assert of_store.startswith(f"{name_of(5)}: [CORRUPT] fails its checksum")
    assert of_sink.startswith(f"{step}: [SINK_DAMAGED] is damaged")
    assert sum_up == "2 faults"
    assert show_verification(tmp_path / "store", {"history": sink}, as_json=True) == 5
    outcome = json.loads(capsys.readouterr().out)
    assert [finding["condition"] for finding in outcome["findings"]] == ["CORRUPT", "SINK_DAMAGED"]
    assert (outcome["ok"], outcome["sinks"]) == (False, ["history"])


def test_a_note_is_no_fault(tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store" / "README.txt").write_text("by hand")
    assert show_verification(tmp_path / "store", {}, as_json=False) == 0
    assert capsys.readouterr().out.startswith("README.txt: is left over")


def test_the_log_is_printed_record_by_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_store(tmp_path, stopped=True)
    show_log(tmp_path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["snapshot", "chosen", "committed", "result", "stopped"]
    assert "numbers" in lines[1]
    assert f'step=1  digest_of_rows="{1:032x}"' in lines[3]
    show_log(tmp_path, as_json=True)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["record"] for record in records] == ["snapshot", "chosen", "committed", "result", "stopped"]
    assert records[1]["outcome"]["position"] == {"start": 20, "end": 30}
    assert {record["written_at"] for record in records} == {None}, "by a writer without a clock"
    assert (records[3]["processor"], records[3]["time"], records[3]["digest"]) == ("sums", 1, f"{1:032x}")


def test_a_long_record_is_cut_on_a_terminal_and_whole_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small_store(tmp_path, stopped=True)
    show_log(tmp_path, as_json=False)
    whole = capsys.readouterr().out.splitlines()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    show_log(tmp_path, as_json=False)
    cut = capsys.readouterr().out.splitlines()
    assert len(whole[0]) > 2 * LINE, "a snapshot has the program"
    assert all(len(line) < LINE + 50 for line in cut)
    assert cut[0].endswith("…")
    assert whole[0].startswith(cut[0][:-1])
    assert cut[1:] == whole[1:]


def cells_of(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if "│" in line]


def test_kept_data_are_named_in_words_and_nothing_is_counted_as_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 0, recorded(lookup()), {}))
    log.append([made(0, "queries"), Determinant("asked", 0, "queries->asked", None)])
    show_kept(tmp_path, as_json=False)
    printed = cells_of(capsys.readouterr().out)
    assert ["determinants", "asked", "1", "", "", "asked: to repeat its determinants"] in printed
    (of_log,) = [row for row in printed if row[0] == "log"]
    assert (of_log[1:3], of_log[5]) == (["", ""], "every start of the dataflow: to recover from")


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["0/left", "0/right"], ["rows of the left side", "rows of the right side"]),
        (["0/left", "1/partials"], ["stage 0: rows of the left side", "stage 1: partial aggregates"]),
        (["0/reach/left", "0/sum.2"], ["reach: rows of the left side", "sum.2"]),
        (["2/0", "named", "_timers"], ["stage 2: rows of input 0", "named", "timers"]),
    ],
)
def test_the_parts_of_a_state_are_explained_in_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], parts: list[str], words: list[str]
) -> None:
    runs = [run_of(part.encode(), f"runs/{number}") for number, part in enumerate(parts)]
    tables = {part: ((run.name,),) for part, run in zip(parts, runs, strict=True)}
    log = claimed(open_store(tmp_path), Claim("host", 1, 0, PROGRAM, {}))
    log.append([made(0, "rows"), Checkpoint("sums", (0,), to_json(RunsPayload(tuple(runs), tables=tables)))])
    show_explanation(tmp_path, [], as_json=False)
    printed = [row for row in cells_of(capsys.readouterr().out) if len(row) == 7 and row[2] == "1"]
    assert [row[1] for row in printed] == words


def test_bad_rows_that_go_to_a_stream_are_named_and_an_unknown_source_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = bl.Dataflow("flow")
    orders = flow.source("orders", bl.files("in/*.csv", schema="k STRING, v LONG"), bad_rows="dead_letters")
    orders.sink("out", ANY)
    orders.bad_rows("bad_orders").sink("bad_out", ANY)
    flow.source("clicks", ANY).sink("clicks_out", ANY)
    claimed(open_store(tmp_path), Claim("host", 1, 0, recorded(plan(flow)), {}))
    told = "bad rows of orders go to the stream bad_orders, not here\n"
    for source in ("", "orders", "orders_source"):
        show_bad_rows(tmp_path, source, as_json=False)
        assert capsys.readouterr().out == f"{told}no bad row is set aside\n"
    show_bad_rows(tmp_path, "clicks", as_json=False)
    assert capsys.readouterr().out == "no bad row is set aside\n"
    for as_json in (False, True):
        with pytest.raises(InvalidError, match=r"\[BAD_OPTION\] flow has no source nope: choose from clicks, orders$"):
            show_bad_rows(tmp_path, "nope", as_json=as_json)


def test_a_part_of_the_log_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    now = [1_700_000_000_000]
    flow = bl.Dataflow("flow")
    flow.source("rows", ANY).transform("clean", ANY).sink("out", ANY)
    log = Log.open(open_store(tmp_path), "flow", clock=lambda: now[0])
    log.claim(Claim("host", 1, 0, recorded(plan(flow)), {}))
    log.append([made(0, "rows")])
    now[0] += 1000
    log.append([StepDigest("clean", 0, "d", 10, 500.0), SinkCommit("out", 0)])

    def shown(**chosen: Any) -> list[str]:
        show_log(tmp_path, as_json=True, **chosen)
        return [json.loads(line)["record"] for line in capsys.readouterr().out.splitlines()]

    everything = shown()
    assert everything == ["claim", "chosen", "result", "committed"]
    assert shown(tail=1) == ["committed"]
    assert shown(tail=99) == shown(since="2023-11-14T22:13:20") == everything
    assert shown(since="2023-11-14T22:13:21") == shown(since="2023-11-14T23:13:21+01:00") == ["result", "committed"]
    assert shown(since="2023-11-14T22:13:22") == []
    assert [shown(processor=each) for each in ("rows", "out")] == [["claim", "chosen"], ["claim", "committed"]]
    assert shown(processor="clean", tail=1, since="2023-11-14") == ["result"]
    for wrong, told in (
        ({"tail": 0}, "--tail 0: give the number of records"),
        ({"since": "yesterday"}, "--since yesterday: write a time such as"),
        ({"processor": "cleam"}, "flow has no processor cleam: choose from "),
    ):
        with pytest.raises(InvalidError, match=rf"\[BAD_OPTION\] {told}"):
            shown(**wrong)


@pytest.mark.parametrize(
    ("frontier", "cells"),
    [((0,), ["sums", "0", "1", "1", "5", "5"]), ((("live->asked", 4), ("queries->asked", 1)), ["sums", "6"])],
    ids=["of epochs", "of arrival order: events 0…6"],
)
def test_a_checkpoint_is_printed_with_its_step_and_what_it_added(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], frontier: Any, cells: list[str]
) -> None:
    claimed(open_store(tmp_path)).append([Checkpoint("sums", frontier, payload_with([run_of(b"state", "runs/1")]))])
    show_checkpoints(tmp_path, as_json=False)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "sums" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")][: len(cells)] == cells


@pytest.mark.spark
def test_the_plan_of_a_program_is_printed_and_runs_nothing(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions as F

    make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.files("data/*.csv", schema=SCHEMA, null_value="NA"))
    clean = rows.transform("clean", lambda df: df.where("v IS NOT NULL"))
    sums = clean.group_by("k").agg("sums", F.sum("v").alias("total"), policy=bl.Lazy(every=3))
    sums.sink("history", bl.parquet("history"))
    show_plan(flow, as_json=False)
    text = capsys.readouterr().out
    assert "for 1,000 messages, beside the steps of sources:\n  sums: none" in text
    assert "recognise rows" not in text
    assert "rows → clean → sums → sink history" in " ".join(text.split())
    assert (
        "rows  files, delivery: exactly once, path: data/*.csv, format: csv, null_value: NA, schema: k string" in text
    )
    for default in ("header", "separator", "encoding", "key: None"):
        assert default not in text
    assert "rows: position, clock, seed" in text
    assert "a checksum of the rows of each step of\n  sums\n" in text
    assert "  sums: the input of all steps since a checkpoint, the rows of a step in any order" in text
    for word in ("staging", "kept as runs", "kernel", "digest", "holds a slot", "convergent"):
        assert word not in text
    assert "sums: 3 steps of sums" in text, "what a failure would cost"
    assert "order that they have in one file: rows, clean and no longer behind sums" in " ".join(text.split())
    assert "At least once: nothing" in text
    show_plan(flow, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert report["units"] == {"sums": ["clean", "sums"]}
    assert report["processors"]["sums"]["keys"] == ["k"]
    assert report["at_least_once"] == []
    assert report["rates"] == {"sums": {"arrival": "none", "least": 0, "most": 0}}
    assert report["unawaited"] == {}
    assert report["executed_again"] == {"sums": {"sums": 3}, "everything": {"sums": 3}}
    assert report["needless_policies"] == {}
    assert not (tmp_path / "history").exists()


@pytest.mark.spark
def test_the_plan_tells_which_receivers_wait_for_nothing_and_why_others_wait(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.generator({"id": "id"}, rows_per_step=1))
    rows.transform("named", lambda df: df.selectExpr("id", "2 * id AS x")).sink("desk", posts())
    rows.transform("timed", lambda df: df.withColumn("at", bl.now())).sink("clocks", posts())
    show_plan(flow, as_json=False)
    text = " ".join(capsys.readouterr().out.split())
    assert "Wait for nothing: desk. The receiver recognises rows by key; after a crash the rows that" in text
    why = "timed uses bl.now(), bl.rand() or bl.uuid(), which are each step's own"
    assert f"Receivers that recognise rows, and wait for the log because {why}: clocks" in text
    assert bl.plan(flow).unawaited == {"desk": "", "clocks": why}


def posts() -> Any:
    return bl.foreach(lambda rows, step: None, key=["id"])


@pytest.mark.spark
def test_the_plan_names_the_approach_of_each_state(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pyspark.sql import functions as F

    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.generator({"k": "id % 3"}, rows_per_step=1))
    policies = {
        "logged": bl.Lazy(None),
        "held": bl.Lazy(20, state="in memory"),
        "placed": bl.Lazy(20),
        "usual": None,
        "eager": bl.Eager(),
    }
    for name, policy in policies.items():
        counts = rows.group_by("k").agg(name, F.count("*").alias("n"), policy=policy)
        counts.sink(f"{name}_out", bl.parquet(name))
    show_plan(flow, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    at = lines.index("How states get over a failure:")
    assert lines[at + 1 : at + 5] == [
        "  input logging: logged",
        "  checkpoint and restore: held",
        "  persistent state: placed, usual",
        "",
    ]


@pytest.mark.spark
def test_the_plan_prints_many_options_one_a_line(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    flow = bl.Dataflow("mine")
    schema = ", ".join(f"a_long_name_{number} DOUBLE" for number in range(9))
    flow.source("rows", bl.files("data/*.csv", schema=schema)).sink("history", bl.parquet("history"))
    show_plan(flow, as_json=False)
    text = capsys.readouterr().out
    assert text.startswith(
        "rows  files\n  delivery: exactly once\n  path: data/*.csv\n  format: csv\n  schema: a_long_name_0"
    )


@pytest.mark.spark
def test_the_plan_names_orders_of_arrival_and_ends_of_epochs(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = bl.Dataflow("mine")
    one, other = (flow.source(name, bl.generator({"n": "id"}, rows_per_step=1)) for name in ("one", "other"))
    one.merge("both", other).gather("hours", policy=bl.Batch(epochs=9)).sink("history", bl.parquet("history"))
    one.merge("all", other).sink("raw", bl.parquet("raw"))
    show_plan(flow, as_json=False)
    text = capsys.readouterr().out
    assert "both: the order in which the steps of its inputs arrived" in text
    assert "and how far each step reached in each of its inputs, one record" in text
    assert "the ends of its epochs, because hours ends epochs by conditions on what has come" in text
    assert "hours: the ends of its epochs" in text


@pytest.mark.spark
def test_the_command_finds_the_sinks_of_the_dataflow(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_data(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    source = (
        "import boatlift as bl\nflow = bl.Dataflow('mine')\n"
        f"rows = flow.source('rows', bl.files('data/*.csv', schema='{SCHEMA}', null_value='NA'))\n"
        "rows.sink('history', bl.parquet('history'))\n"
    )
    (tmp_path / "verified.py").write_text(source)
    module: dict[str, bl.Dataflow] = {}
    exec(source, module)
    bl.run(module["flow"], "store", available_now=True, spark=spark)

    def verify(*more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "boatlift.console", "verify", "--store", "store", *more]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    victim = tmp_path / "history" / "step-000000000002.parquet"
    victim.write_bytes(victim.read_bytes()[:-1])
    without = verify()
    assert (without.returncode, without.stdout) == (0, "everything verifies: the store\n")
    found = verify("--flow", "verified:flow")
    assert found.returncode == 5
    assert f"{victim}: [SINK_DAMAGED]" in found.stdout


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    small_store(tmp_path, stopped=True)
    command = [sys.executable, "-m", "boatlift.console", "log", "--store", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as shown:
        assert shown.stdout is not None
        shown.stdout.close()  # as `head` does
        assert shown.stderr is not None
        assert shown.stderr.read() == ""
    assert shown.returncode == 128 + signal.SIGPIPE


LONG = "a-name-of-a-processor-that-takes-nearly-all-of-the-sixty-four-"
EDGES = [f"{LONG}0->{LONG}{n}" for n in (1, 2)]


@pytest.mark.parametrize("on_a_terminal", [False, True], ids=["pipe", "80 columns"])
def test_no_name_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on_a_terminal: bool
) -> None:
    flow = bl.Dataflow("flow")
    first = flow.source("rows", ANY).transform(f"{LONG}0", ANY)
    for n in (1, 2):
        first.group_by("k").agg(f"{LONG}{n}", ANY).sink(f"out{n}", ANY)
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, recorded(plan(flow)), {}))
    log.append(
        [
            made(0, "rows"),
            *(LoggedMessage(edge, 0, payload_with([run_of(b"x", f"runs/{edge[-1]}")])) for edge in EDGES),
        ]
    )
    log.append([saved(0, run_of(b"x", "runs/1"), processor=f"{LONG}{n}") for n in (1, 2)])
    log.append([StepDigest(f"{LONG}{n}", time, "d", 10, 500.0) for n in (1, 2) for time in (0, 1)])
    if on_a_terminal:
        monkeypatch.setattr(tables, "console", lambda: Console(width=80, force_terminal=True, no_color=True))
    for show, names in (
        (lambda: show_kept(tmp_path, as_json=False), EDGES),
        (lambda: show_status(tmp_path, as_json=False), [f"{LONG}1", f"{LONG}2"]),
        (lambda: show_explanation(tmp_path, [], as_json=False), [f"{LONG}1", f"{LONG}2"]),
        (lambda: show_checkpoints(tmp_path, as_json=False), [f"{LONG}1", f"{LONG}2"]),
    ):
        show()
        lines = capsys.readouterr().out.splitlines()
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
        whole = ["".join(column) for column in zip_longest(*rows, fillvalue="")]
        for name in names:
            assert any(name in column for column in whole), f"{name} is cut in {lines}"
            assert on_a_terminal or any(name in line for line in lines if "│" in line)
