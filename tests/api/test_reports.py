"""From Python: what a program is, how far it is, and the error that ended it."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

import boatlift as bl
from boatlift.console.contents import show_status
from boatlift.console.plan import show_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("data/1.csv").write_text("k,v\na,1\nb,2\n")


def flow_of(where: str) -> bl.Dataflow:
    flow = bl.Dataflow("mine")
    rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG"))
    rows.transform("clean", lambda df: df.where(where)).sink("out", bl.parquet("out"))
    return flow


def test_plan_is_what_the_command_shows(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    report = bl.plan(flow_of("v > 0"), spark=spark)
    assert report.dataflow == "mine"
    assert report.jobs["clean"].reads == ["rows"]
    show_plan(flow_of("v > 0"), as_json=True)
    assert json.loads(capsys.readouterr().out) == {"version": 1, **json.loads(msgspec.json.encode(report))}
    with pytest.raises(bl.InvalidError, match=r"\[EMPTY_DATAFLOW\]"):
        bl.plan(bl.Dataflow("empty"))


def test_status_is_what_the_command_shows_while_it_runs_and_after(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[STORE_NOT_FOUND\]"):
        bl.status("store")
    running = bl.start(flow_of("v > 0"), "store", available_now=True, spark=spark)
    assert running.status().state == "alive"
    with pytest.raises(bl.InvalidError, match=r"\[STORE_IN_USE\] this process has run mine on this store since"):
        bl.run(flow_of("v > 0"), "store", available_now=True, spark=spark)
    while not running.wait(0.05):
        assert "runs" in repr(running) or not running.is_active
    assert repr(running) == "<mine has ended>"
    assert running.exception is None
    assert running.status() == bl.status("store")
    assert (running.status().state, running.status().sinks) == ("stopped", {"out": 0})
    show_status(Path("store"), as_json=True)
    status = json.loads(msgspec.json.encode(running.status().as_json()))
    assert json.loads(capsys.readouterr().out) == {"version": 1, **status}


@pytest.mark.parametrize("store", [None, 7])
def test_a_store_that_is_none_is_refused(spark: SparkSession, store: Any) -> None:
    for call in (bl.run, bl.start):
        with pytest.raises(bl.InvalidError, match=rf"\[BAD_OPTION\] store={store}: give a folder, such as"):
            call(flow_of("v > 0"), store, available_now=True, spark=spark)


def test_a_run_that_fails_in_the_background_says_so_at_once(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "lastResort", logging.StreamHandler(sys.stderr))  # as in a new process
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    Path("data/2.csv").write_text("k,v\na,many\n")
    running = bl.start(flow_of("v > 0"), "store", available_now=True, spark=spark)
    with pytest.raises(bl.DataError, match=r"\[BAD_ROW\]") as raised:
        running.wait()
    assert running.exception is raised.value
    assert not running.is_active
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "no longer" in line]
    assert told.startswith("mine runs no longer: [BAD_ROW] ")
    assert told.endswith("(wait() raises it; start it again, and it goes on)")
    assert "[BAD_ROW]" in repr(running)


def test_the_status_of_a_store_of_another_kind_says_what_to_give(spark: SparkSession) -> None:
    from boatlift.storage.local import LocalStore

    class Another:
        def __init__(self, store: LocalStore) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

    opened = LocalStore.open(Path("s"), create=True)
    running = bl.start(flow_of("v > 0"), opened, available_now=True, spark=spark)
    running.wait()
    assert running.status() == bl.status("s")
    running = bl.start(flow_of("v > 0"), Another(opened), available_now=True, spark=spark)
    running.wait()
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] .* start with store='FOLDER'"):
        running.status()
