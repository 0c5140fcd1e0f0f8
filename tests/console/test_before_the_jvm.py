"""Errors that need no Spark are found without Java: wrong programs, wrong options, a wrong store."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pytest

import boatlift as bl
from boatlift.dataflow import SinkContext
from boatlift.runtime.host.ownership import this_process
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.records.records import Claim
from support.commands import begun, boatlift, without_java

PLAIN = """
import boatlift as bl

flow = bl.Dataflow("plain")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG"))
rows.transform("clean", lambda df: df.where("v > 0")).sink("out", bl.parquet("history"))
"""

EVERYTHING = """
import boatlift as bl

flow = bl.Dataflow("plain")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG"))
rows.recompute("fit", lambda df: df, policy=bl.Batch(epochs=2)).sink("out", bl.parquet("history"))
"""

NEEDS_SPARK = """
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("plain")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v LONG"))
rows.group_by("k").agg("sums", F.sum("v").alias("total")).sink("out", bl.parquet("history"))
"""

PLACES = """
import boatlift as bl

flow = bl.Dataflow("places")
prices = flow.source("prices", bl.files("prices/*.csv", schema="k STRING, v LONG"))
bookings = flow.source("bookings", bl.files("bookings/*.csv", schema="k STRING, v LONG"))
prices.union("both", bookings).sink("out", bl.sqlite("answers.db", table="answers", key=["k"]))
"""

PROGRAMS = {
    "plain": PLAIN,
    "everything": EVERYTHING,
    "needs": NEEDS_SPARK,
    "empty": 'import boatlift as bl\nflow = bl.Dataflow("empty")\n',
    "raising": 'import boatlift as bl\nflow = bl.Dataflow("raising")\n{}["nothing"]\n',
    "policy": PLAIN.replace('"v > 0")', '"v > 0"), policy=bl.Lazy(every=0)'),
}

PROGRAMS["lacking"] = PLAIN.replace('bl.parquet("history")', 'bl.sqlite("a.db", key=["k"])')

RUN = ("run", "--store", "store")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        ((*RUN, "nosuch:flow"), 2, "[FLOW_NOT_FOUND] there is no module nosuch"),
        (("plan", "nosuch:flow"), 2, "[FLOW_NOT_FOUND] there is no module nosuch"),
        ((*RUN, "plain:other"), 2, "[FLOW_NOT_FOUND] plain has no Dataflow named other: it has flow"),
        ((*RUN, "raising:flow"), 7, "[USER_CODE] importing raising raised KeyError('nothing')"),
        (("plan", "raising:flow"), 7, "[USER_CODE] importing raising raised KeyError('nothing')"),
        ((*RUN, "empty:flow"), 2, "[EMPTY_DATAFLOW]"),
        (("plan", "empty:flow"), 2, "[EMPTY_DATAFLOW]"),
        ((*RUN, "policy:flow"), 2, "[BAD_OPTION] Lazy(every=0)"),
        ((*RUN, "lacking:flow"), 2, "[BAD_OPTION] bl.sqlite lacks table: write table=…\n"),
        ((*RUN, "plain:flow", "--conf", "nonsense"), 2, "[BAD_OPTION] --conf nonsense"),
        ((*RUN, "plain:flow", "--skip", "clean"), 2, "[BAD_OPTION] 'clean' is no step"),
        ((*RUN, "plain:flow", "--skip", "rows:3"), 2, "[BAD_OPTION] rows executes no steps that could be skipped"),
        ((*RUN, "everything:flow", "--skip", "fit:3"), 2, "[BAD_OPTION] fit takes all rows at every step"),
        (("look", "plain:flow", "--store", "nowhere", "--step", "clean:0"), 2, "[STORE_NOT_FOUND]"),
        (("look", "plain:flow", "--store", "nowhere", "--step", "rows:0"), 2, "[STORE_NOT_FOUND]"),
        (
            ("look", "plain:flow", "--store", "nowhere", "--step", "out:7"),
            2,
            "[BAD_OPTION] out executes no steps of its own: write --step clean:7",
        ),
        (("run", "plain:flow", "--store", "others"), 5, "[STORE_OF_ANOTHER_DATAFLOW]"),
        (("run", "plain:flow", "--store", "plain.py/st"), 2, "[BAD_OPTION] a store cannot be at plain.py/st, because"),
        (("run", "plain:flow", "--store", "x" * 300), 3, "[STORE_FAILED] the folder . in"),
        ((*RUN, "plain:flow", "--health", "8080"), 2, "[BAD_OPTION] '8080' is no address: write host:port"),
        ((*RUN, "plain:flow", "--replica", "--available-now"), 2, "[BAD_OPTION] replica=True goes on after every"),
        (("look", "plain:flow", "--store", "x" * 300, "--step", "clean:0"), 3, "[STORE_FAILED] the folder . in"),
        (("look", "plain:flow", "--store", "x" * 300, "--step", "else:0"), 2, "[BAD_OPTION] else executes no steps"),
    ],
)
def test_errors_that_need_no_spark_are_reported_without_java(
    here: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    log = Log.open(LocalStore.open(here / "others", create=True), "other")
    log.claim(Claim("here", 1, 0, {}, {}))
    done = boatlift(here, *arguments, environment=without_java(here))
    assert f"boatlift: {told}" in done.stderr
    assert done.returncode == status
    assert "starting Spark" not in done.stderr
    assert "Traceback" not in done.stderr or "[USER_CODE]" in done.stderr
    assert not (here / "store").exists()


@pytest.mark.parametrize("arguments", [(*RUN, "needs:flow"), ("plan", "needs:flow"), (*RUN, "plain:flow")])
def test_a_command_asks_for_java_when_it_needs_spark(here: Path, arguments: tuple[str, ...]) -> None:
    done = boatlift(here, *arguments, environment=without_java(here))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("boatlift: [NO_JAVA] no Java was found")
    assert "Traceback" not in done.stderr


def test_a_folder_that_holds_no_java_is_named(here: Path) -> None:
    environment = {**without_java(here), "JAVA_HOME": "/nowhere"}
    done = boatlift(here, *RUN, "plain:flow", environment=environment)
    assert done.returncode == 2
    assert "[NO_JAVA] JAVA_HOME=/nowhere holds no Java that runs" in done.stderr.splitlines()[-1]


def test_sinks_are_verified_without_java(here: Path) -> None:
    log = Log.open(LocalStore.open(here / "store", create=True), "plain")
    log.claim(Claim("here", 1, 0, {}, {}))
    done = boatlift(here, "verify", "--store", "store", "--flow", "plain:flow", environment=without_java(here))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("process", "more", "told"),
    [
        (this_process(), (), "[STORE_IN_USE] process"),
        (this_process(), ("--take-over",), "[NO_JAVA]"),
        ("", (), "[NO_JAVA]"),
    ],
    ids=["lives", "is taken over", "not known"],
)
def test_a_store_whose_owner_lives_on_this_host_is_not_taken_over_unasked(
    here: Path, process: str, more: tuple[str, ...], told: str
) -> None:
    log = Log.open(LocalStore.open(here / "store", create=True), "plain")
    log.claim(Claim(socket.gethostname(), os.getpid(), 0, {}, {}, process))
    done = boatlift(here, *RUN, "plain:flow", *more, environment=without_java(here))
    assert f"boatlift: {told}" in done.stderr
    assert done.returncode == 2


def test_all_places_that_can_serve_nothing_are_reported_at_once_and_nothing_is_made(here: Path) -> None:
    (here / "places.py").write_text(PLACES)
    made = bl.sqlite(here / "answers.db", table="answers", key=["k"])
    schema = pa.schema([("k", pa.string()), ("v", pa.int64())])
    made.open(SinkContext("places", "out", "7" * 32, 1, schema, changes=False))
    made.close()
    done = boatlift(here, *RUN, "places:flow", environment=without_java(here))
    assert done.returncode == 2
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"boatlift: [NO_INPUT] there is no folder {here}/prices to find files in")
    assert f"; there is no folder {here}/bookings to find files in" in told
    assert f"; [SINK_OF_ANOTHER_STORE] table answers of {here}/answers.db was written by another store" in told
    assert not (here / "store").exists()


@pytest.mark.parametrize("command", [RUN, ("plan",), ("verify", "--store", "store", "--flow")])
def test_a_command_names_the_extra_where_pyspark_is_not_installed(here: Path, command: tuple[str, ...]) -> None:
    """The packages are those of this environment, without PySpark's."""
    packages = here / "packages"
    packages.mkdir()
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith(("pyspark", "py4j", "boatlift")):
            (packages / installed.name).symlink_to(installed)
    path = os.pathsep.join([str(packages), str(Path(bl.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-S", "-m", "boatlift.console", *command, "needs:flow"],
        cwd=here, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == (
        "boatlift: [MISSING_EXTRA] pyspark is not installed: pip install 'boatlift[spark]'"
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


@pytest.mark.parametrize("option", ["--standby", "--for-handover"])
def test_a_standby_waits_for_its_store_without_java(here: Path, option: str) -> None:
    """A signal ends it well."""
    arguments = ("run", "plain:flow", "--store", "later", option)
    with begun(here, *arguments, environment=without_java(here)) as process:
        assert process.stderr is not None
        said = "plain: this standby waits for a store: there is no store in later: give the path that run was given"
        assert any(said in line for line in process.stderr)
        process.terminate()
        assert process.wait(60) == 0
    assert not (here / "later").exists()
