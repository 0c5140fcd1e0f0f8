"""A user's function raises at a row at each call: the command says so once, soon, and its advice works as typed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from support.commands import boatlift

pytestmark = pytest.mark.spark

POISONED = 3

FLOW = """
from pathlib import Path

import boatlift as bl
from pyspark.sql import functions as F

here = str(Path(__file__).parent)


def number(value):
    if value == "poison":
        with open(here + "/calls", "a") as calls:
            calls.write("x")
        raise ValueError("no number: " + value)
    return int(value)


flow = bl.Dataflow("mine")
rows = flow.source("rows", bl.files("data/*.csv", schema="k STRING, v STRING"))
read = rows.transform("read", lambda df: df.withColumn("v", F.udf(number, "int")("v")), deterministic=True)
read.group_by("k").agg("sums", F.sum("v").alias("total")).sink("out", bl.parquet("history"))
"""

RUN = ("run", "mine:flow", "--store", "store", "--available-now")


def test_it_is_reported_once_with_file_and_remedy_and_is_not_tried_for_long(tmp_path: Path, warm_jvm: WarmJvm) -> None:
    (tmp_path / "mine.py").write_text(FLOW)
    line = next(at for at, text in enumerate(FLOW.splitlines(), 1) if "raise ValueError" in text)
    (tmp_path / "data").mkdir()
    for file in range(8):
        value = "poison" if file == POISONED else "5"
        (tmp_path / "data" / f"{file}.csv").write_text(f"k,v\na,{value}\n")

    failed = boatlift(tmp_path, *RUN)  # with a JVM of its own, whose standard error is the command's
    assert failed.returncode == 7
    told = failed.stderr.splitlines()
    own = [at for at, said in enumerate(told) if not said.startswith("boatlift: ")]
    assert [told[at] for at in own][:1] == ["Traceback (most recent call last):"], failed.stderr
    assert own == [*range(own[0], len(told) - 1)], "nothing but one traceback, before the last line"
    assert failed.stderr.count("Traceback") == 1
    assert told[-1].startswith(
        f"boatlift: [USER_CODE] a function of read raised at step {POISONED} of sums: ValueError: no number: poison "
        f"(line {line} of {tmp_path}/mine.py); the step takes {tmp_path}/data/{POISONED}.csv; "
    )
    # Twice with other steps in one job, and twice alone.
    assert len((tmp_path / "calls").read_text()) <= 4

    look, run = re.findall(r"boatlift ((?:look|run) \S+ --store \S+ --(?:step|skip) \S+)", told[-1])
    looked = boatlift(tmp_path, *shlex.split(look), "--json", environment=warm_jvm.environment())
    assert looked.stdout.splitlines()[-1] == '{"k":"a","v":"poison"}', looked.stderr
    skipped = boatlift(tmp_path, *shlex.split(run), "--available-now", environment=warm_jvm.environment())
    assert skipped.returncode == 0, skipped.stderr
    assert f"boatlift: skipped, and on the record: step {POISONED} of sums gives nothing" in skipped.stderr


def test_a_program_that_was_refused_runs_with_the_same_command_once_it_is_corrected(
    tmp_path: Path, warm_jvm: WarmJvm
) -> None:
    """The refused run has made the folder of the store, and nothing in it."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "0.csv").write_text("k,v\na,5\n")
    (tmp_path / "mine.py").write_text(FLOW.replace(", deterministic=True", ""))
    refused = boatlift(tmp_path, *RUN, environment=warm_jvm.environment())
    assert (refused.returncode, "[NOT_DETERMINISTIC]" in refused.stderr) == (2, True), refused.stderr
    (tmp_path / "store").mkdir(exist_ok=True)
    assert list((tmp_path / "store").iterdir()) == []
    (tmp_path / "mine.py").write_text(FLOW)
    corrected = boatlift(tmp_path, *RUN, environment=warm_jvm.environment())
    assert corrected.returncode == 0, corrected.stderr
