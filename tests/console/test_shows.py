"""What the commands show of a store, and with its dataflow of the sinks too."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.connectors.parquet.sink import ParquetSink
from boatlift.console.shows import show_checkpoints, show_log, show_plan, show_verification
from boatlift.storage.log_reader import name_of
from boatlift.storage.records.facts import Checkpoint
from boatlift.storage.records.payloads import contents_with
from connectors.conformance import context, put
from support.crash_data import make_data
from support.facts import small_store
from support.hosts import open_store
from support.logs import claimed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "k STRING, g INT, v DOUBLE"


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    small_store(tmp_path / "store", stopped=True)
    sink = bl.parquet(tmp_path / "history")
    sink.open(context())
    put(sink, tmp_path / "history", 0)
    return sink


def test_what_is_whole_verifies(tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]) -> None:
    never_written = bl.sqlite(tmp_path / "out.db", table="t", key=["k"])
    assert show_verification(tmp_path / "store", {"history": sink, "answers": never_written}, as_json=False) == 0
    assert capsys.readouterr().out == "everything verifies: the store, sink answers, sink history\n"
    assert show_verification(tmp_path / "store", {}, as_json=False) == 0
    assert capsys.readouterr().out == "everything verifies: the store\n"


def test_what_is_wrong_is_told_in_sentences_about_store_and_sinks(
    tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]
) -> None:
    group, step = tmp_path / "store" / name_of(5), tmp_path / "history" / "step-000000000000.parquet"
    for path in (group, step):
        path.write_bytes(path.read_bytes()[:-1])
    (tmp_path / "store" / "README.txt").write_text("by hand")
    assert show_verification(tmp_path / "store", {"history": sink}, as_json=False) == 5
    store_says, sink_says, sum_up = capsys.readouterr().out.splitlines()
    assert store_says.startswith(f"{name_of(5)}: [CORRUPT] fails its checksum")
    assert sink_says.startswith(f"{step}: [SINK_DAMAGED] is damaged")
    assert sum_up == "2 faults"
    assert show_verification(tmp_path / "store", {"history": sink}, as_json=True) == 5
    said = json.loads(capsys.readouterr().out)
    assert [finding["condition"] for finding in said["findings"]] == ["CORRUPT", "SINK_DAMAGED"]
    assert (said["ok"], said["sinks"]) == (False, ["history"])


def test_a_note_is_no_fault(tmp_path: Path, sink: ParquetSink, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "store" / "README.txt").write_text("by hand")
    assert show_verification(tmp_path / "store", {}, as_json=False) == 0
    assert capsys.readouterr().out.startswith("README.txt: is left over")


def test_the_log_is_told_record_by_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_store(tmp_path, stopped=True)
    show_log(tmp_path, as_json=False)
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["snapshot", "chosen", "committed", "result", "stopped"]
    assert "numbers" in lines[1]
    show_log(tmp_path, as_json=True)
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [record["record"] for record in told] == ["snapshot", "chosen", "committed", "result", "stopped"]
    assert told[1]["outcome"]["position"] == {"start": 20, "end": 30}
    assert {record["written_at"] for record in told} == {None}, "by a writer without a clock"
    assert (told[3]["processor"], told[3]["time"], told[3]["digest"]) == ("sums", 1, f"{1:032x}")


def test_checkpoints_are_told_with_what_they_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_store(tmp_path, stopped=True)
    show_checkpoints(tmp_path, as_json=True)
    (told,) = json.loads(capsys.readouterr().out)
    assert (told["processor"], told["frontier"]) == ("sums", [0])
    assert [run["name"] for run in told["runs"]] == ["runs/1"]
    show_checkpoints(tmp_path, as_json=False)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "sums" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")] == ["sums", "0", "1", "1", "51", "51"]


def test_checkpoints_of_who_takes_its_inputs_as_they_come_are_told_by_how_many_it_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = claimed(open_store(tmp_path))
    log.append([Checkpoint("asked", (("live->asked", 4), ("queries->asked", 1)), contents_with([]))])
    show_checkpoints(tmp_path, as_json=False)
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "asked" in line]
    assert [cell.strip() for cell in row.strip("│ ").split("│")][:2] == ["asked", "6"], "events 0…6"


@pytest.mark.spark
def test_the_plan_of_a_program_is_told_and_runs_nothing(
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
    told = capsys.readouterr().out
    assert "rows → clean → sums, staging for history" in " ".join(told.split())
    assert "rows: position, clock, seed" in told
    assert "sums: 3 steps of sums" in told, "what a failure would cost"
    assert "At least once: nothing" in told
    show_plan(flow, as_json=True)
    plan = json.loads(capsys.readouterr().out)
    assert plan["units"] == {"sums": ["clean", "sums"]}
    assert plan["processors"]["sums"]["keys"] == ["k"]
    assert plan["at_least_once"] == []
    assert plan["executed_again"] == {"sums": {"sums": 3}, "everything": {"sums": 3}}
    assert plan["needless_policies"] == {}
    assert not (tmp_path / "history").exists()


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
