"""README's code does what README says, as it is printed."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import boatlift as bl
from boatlift.conditions import CONDITIONS
from boatlift.console.app import app
from boatlift.console.plan import show_plan
from boatlift.dataflow.processors import SinkProcessor, upstreams_of
from support.readme import ROOT, TEXT, Block, block_of_file, blocks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIRST, FUNCTIONS, JOINS = "Write one", "Call your own functions", "Joins, batches and merges"
PYTHON = blocks(language="python")
COMMANDS = re.findall(r"^\| `(boatlift .+?)` \|", TEXT, re.MULTILINE)


def named(block: Block) -> str:
    return f"line {block.line}"


# -- what needs no JVM ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", PYTHON, ids=named)
def test_every_python_block_compiles_and_names_what_there_is(block: Block) -> None:
    owners = {"bl": bl, "F": F, "flow": bl.Dataflow("readme"), "running": bl.Running}
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in owners:
            assert hasattr(owners[node.value.id], node.attr), f"{node.value.id}.{node.attr}"


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_every_condition_is_one() -> None:
    conditions = set(re.findall(r"\[([A-Z]+(?:_[A-Z]+)*)\](?!\()", TEXT))
    assert conditions
    assert conditions <= set(CONDITIONS)


def test_every_make_target_is_one() -> None:
    targets = set(re.findall(r"(?:^|`)make ([a-z-]+)", TEXT, re.MULTILINE))
    assert targets
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_what_pip_installs_is_this_folder_with_extras_that_there_are() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    wanted = re.findall(r'"([^"]*)\[([a-z,]+)\]"', TEXT)
    assert wanted
    assert all(of == "." for of, _ in wanted), "no package index has Boatlift"
    assert {extra for _, names in wanted for extra in names.split(",")} == set(extras)


def test_requirements_are_those_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    python = project["requires-python"].removeprefix(">=")
    pyspark = next(each for each in project["optional-dependencies"]["spark"] if each.startswith("pyspark"))
    least, below = re.fullmatch(r"pyspark\[sql\]>=([\d.]+),<([\d.]+)", pyspark).groups()
    assert f"Python ≥ {python}, Java ≥ 17, PySpark ≥ {least} and < {below}" in " ".join(TEXT.split())


# -- the first example ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as a clone is after `make setup`, with the first example's file in `try`."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("examples", "requirements"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "try").mkdir()
    (folder / "try" / "flights.py").write_text(block_of_file("flights.py").text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def printed(checkout: Path) -> str:
    """What the first example's shell block prints."""
    (shell,) = blocks(FIRST, "sh")
    done = subprocess.run(
        ["sh", "-e"], input=shell.text, cwd=checkout, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Changes to a folder whose `flights.py` is the module of that name."""

    def go(folder: Path) -> None:
        sys.modules.pop("flights", None)
        monkeypatch.chdir(folder)
        monkeypatch.syspath_prepend(str(folder))

    yield go
    sys.modules.pop("flights", None)


@pytest.mark.spark
def test_the_first_example_prints_what_is_printed_below_it(printed: str) -> None:
    (shell,) = blocks(FIRST, "sh")
    expected = [line.removeprefix("# ") for line in shell.text.splitlines() if line.startswith("# ")]
    assert len(expected) == 3
    assert printed.splitlines()[-3:] == expected


@pytest.mark.spark
@pytest.mark.usefixtures("printed", "spark")
def test_the_first_example_goes_on_from_python_and_its_history_sums_up_to_its_answers(
    checkout: Path, place: Callable[[Path], None]
) -> None:
    place(checkout / "try")
    (notebook,) = [block for block in blocks(FIRST, "python") if "bl.run(" in block.text]
    (reading,) = blocks("Read the results", "python")
    names: dict[str, Any] = {"F": F}
    exec(compile(notebook.text, "README.md", "exec"), names)
    shown = []
    # The JVM of these tests was started in another folder than a reader's.
    for statement in ast.parse(reading.text.replace('"history"', repr(str(Path.cwd() / "history")))).body:
        if isinstance(statement, ast.Expr):
            shown.append(eval(compile(ast.Expression(statement.value), "README.md", "eval"), names).collect())
        else:
            exec(compile(ast.Module([statement], []), "README.md", "exec"), names)
    now, total, ever = shown
    with closing(sqlite3.connect("answers.db")) as database:
        answers = database.execute("SELECT * FROM delays").fetchall()
    assert sorted(map(tuple, now)) == sorted(answers)
    assert total == [(sum(row[2] for row in answers),)]
    assert len(ever) > len(now)


# -- what is built on it --------------------------------------------------------------------------------------------------


def built(*parts: str, without: str = "") -> dict[str, Any]:
    """Execute the first example's file, and parts of README after it; return what they name."""
    names: dict[str, Any] = {}
    for text in (block_of_file("flights.py").text, *parts):
        exec(compile(text.replace(without, "") if without else text, "README.md", "exec"), names)
    return names


def planned(flow: bl.Dataflow, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Plan a flow; what nothing reads gets a sink first, since a fragment of README may end there."""
    read = {upstream for processor in flow.processors.values() for upstream in upstreams_of(processor)}
    for name, processor in list(flow.processors.items()):
        if name not in read and not isinstance(processor, SinkProcessor):
            bl.Stream(flow, name).sink(f"all_{name}", bl.parquet(f"all_{name}"))
    show_plan(flow, as_json=True)
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def weeks(checkout: Path, printed: str, tmp_path: Path, place: Callable[[Path], None]) -> Path:
    """An empty folder but for the first nine weeks of flights."""
    (tmp_path / "data" / "flights").mkdir(parents=True)
    for week in sorted((checkout / "try" / "data" / "flights").iterdir())[:9]:
        shutil.copy(week, tmp_path / "data" / "flights")
    place(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("spark")
def test_kafka_and_push_sections_are_planned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(block_of_file("delays.py").text, "README.md", "exec"), names)
    assert set(planned(names["flow"], capsys)["processors"]) == {"flights", "landed", "routes", "out"}
    sources = [block.text for block in blocks("Push rows", "python") if "flow.source(" in block.text]
    assert sources
    for text in sources:
        assert "orders" in planned(built(text)["flow"], capsys)["processors"]


def test_joins_and_functions_run_and_give_what_is_said(weeks: Path, spark: SparkSession) -> None:
    for week in sorted((weeks / "data" / "flights").iterdir())[2:]:
        week.unlink()
    (weeks / "queries").mkdir()
    (weeks / "queries" / "1.csv").write_text("id,origin,dest\n1,JFK,LAX\n2,nowhere,LAX\n")
    (functions,), (joins,) = blocks(FUNCTIONS, "python"), blocks(JOINS, "python")
    bl.run(built(functions.text, joins.text)["flow"], "store", available_now=True, spark=spark)
    assert spark.read.parquet(str(weeks / "routes")).where("route = 'JFK-LAX'").count() > 0
    with closing(sqlite3.connect("answers.db")) as database:
        replies = database.execute("SELECT * FROM replies ORDER BY id")
        assert [column[0] for column in replies.description] == ["id", "origin", "dest", "live_delay", "fit_expected"]
        assert [row[:3] for row in replies] == [(1, "JFK", "LAX"), (2, "nowhere", "LAX")]


@pytest.mark.usefixtures("spark")
def test_a_function_that_is_not_declared_is_refused_as_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (functions,) = blocks(FUNCTIONS, "python")
    assert ", deterministic=True" in functions.text
    flow = built(functions.text, without=", deterministic=True")["flow"]
    said = re.search(r"`(\[NOT_DETERMINISTIC\] [^`…]+)", TEXT)
    with pytest.raises(bl.InvalidError, match=re.escape(said[1])):
        planned(flow, capsys)


def exit_status(words: list[str]) -> object:
    """Run a command in this process; return its exit status."""
    try:
        app(words, result_action="return_value", exit_on_error=False)
    except SystemExit as ended:
        return ended.code
    return 0


def test_every_command_of_the_table_ends_well(
    weeks: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    # With this policy every step stays on the record, so that there is one to look at.
    text = block_of_file("flights.py").text
    assert "Lazy(every=20)" in text
    (weeks / "flights.py").write_text(text.replace("Lazy(every=20)", "Lazy(every=None)"), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile((weeks / "flights.py").read_text(), "flights.py", "exec"), names)
    bl.run(names["flow"], "store", available_now=True, spark=spark)
    assert len(COMMANDS) >= 8
    for command in COMMANDS:
        # What is in brackets may be left out; p and q stand for names.
        for form in {re.sub(r" \[.*?\]", "", command), command.replace("[", "").replace("]", "")}:
            words = shlex.split(form.replace("p,q", "delays,answers"))[1:]
            for more in ([], ["--json"]):
                assert exit_status([*words, *more]) == 0, form
                assert capsys.readouterr().out, form
