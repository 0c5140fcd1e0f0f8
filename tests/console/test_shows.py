"""What the commands show of a store, and with its dataflow of the sinks too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import boatlift as bl
from boatlift.connectors.parquet import ParquetSink
from boatlift.console.shows import show_verification
from boatlift.storage.log import name_of
from connectors.conformance import context, put
from support.crash_data import make_data
from support.facts import small_store

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
