"""Errors in the user's own file are shown with the user's own lines, before a JVM starts if possible."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import boatlift as bl
from boatlift.console.app import main
from boatlift.dataflow import plan
from boatlift.spark.jobs.diagnosis import explain, remedy

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")

RUN = ("run", "--store", "store")

OWN_TEXT = "type FLOW --store STORE"
RAISED = f"""Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/pyspark/worker.py", line 7, in main
    process()
  File "/home/me/flights.py", line 5, in number
    raise ValueError(v)
ValueError: {OWN_TEXT}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr("boatlift.processes.session.session", lambda *_, **__: None)
    return tmp_path


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a JVM is started for nothing")

    monkeypatch.setattr("boatlift.processes.session.session", refuse)


def boatlift(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["boatlift", *arguments])
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.usefixtures("no_session")
@pytest.mark.parametrize("command", [RUN, ("plan",)])
@pytest.mark.parametrize("where", ["nowhere:flow", "package.nowhere:flow", "single.nowhere:flow", "single", ":flow"])
def test_a_module_that_is_not_there(
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    where: str,
) -> None:
    (here / "package").mkdir()
    (here / "package" / "__init__.py").write_text("raise AssertionError('imported')\n")
    (here / "single.py").write_text("raise AssertionError('imported')\n")
    assert boatlift(monkeypatch, *command, where) == 2
    told = capsys.readouterr().err
    assert "[FLOW_NOT_FOUND]" in told
    if "nowhere" in where:
        assert f"there is no module {where.partition(':')[0]} in {here}" in told
    assert told.count("\n") == 1


@pytest.mark.usefixtures("no_session")
def test_a_store_that_is_a_url(here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("gs://bucket/store", "s3:/bucket/store"):
        assert boatlift(monkeypatch, "run", "mine:flow", "--store", url) == 2
        assert f"[BAD_OPTION] a store cannot be at {url.replace(':/b', '://b')}: give a path" in capsys.readouterr().err
    for url in ("s3://bucket", "s3://bucket/", "s3:///prefix"):
        assert boatlift(monkeypatch, "run", "mine:flow", "--store", url) == 2
        assert f"[BAD_OPTION] a store cannot be at {url}: give s3://BUCKET/PREFIX" in capsys.readouterr().err
    for option, value in (("scratch", "scratch"), ("linger", "0.2"), ("cache", "1000")):
        assert boatlift(monkeypatch, "run", "mine:flow", "--store", "store", f"--{option}", value) == 2
        assert f"[BAD_OPTION] --{option} is for s3:// stores" in capsys.readouterr().err


@pytest.mark.usefixtures("no_session")
def test_a_module_that_is_no_python(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "broken_syntax.py").write_text("import boatlift\n\nflow = (\n")
    assert boatlift(monkeypatch, *RUN, "broken_syntax:flow") == 7
    told = capsys.readouterr().err
    assert f'File "{here}/broken_syntax.py", line 3' in told
    assert "flow = (" in told
    assert told.splitlines()[-1].startswith("boatlift: [USER_CODE] broken_syntax is no valid Python")


@pytest.mark.parametrize("raising", ['{}["nothing"]', "import no_such_package_at_all"])
def test_a_module_that_raises(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raising: str
) -> None:
    (here / "raising.py").write_text(f"def look_up():\n    {raising}\n\n\nlook_up()\n")
    monkeypatch.delitem(sys.modules, "raising", raising=False)
    assert boatlift(monkeypatch, *RUN, "raising:flow") == 7
    told = capsys.readouterr().err.splitlines()
    files = [line for line in told if line.startswith("  File ")]
    assert files == [
        f'  File "{here}/raising.py", line 5, in <module>',
        f'  File "{here}/raising.py", line 2, in look_up',
    ]
    assert told[-1].startswith("boatlift: [USER_CODE] importing raising raised")
    assert told[-1].endswith(f"(line 2 of {here}/raising.py)")
    assert told.count("Traceback (most recent call last):") == 1


def test_a_module_without_the_flow(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "other_flow.py").write_text("import boatlift as bl\nmine = bl.Dataflow('mine')\n")
    assert boatlift(monkeypatch, *RUN, "other_flow:flow") == 2
    assert "other_flow has no Dataflow named flow: it has mine" in capsys.readouterr().err


def test_the_commands_that_an_error_advises_can_be_typed_and_the_users_own_text_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        error = explain(RuntimeError(RAISED), "sums", 3, remedy=remedy(planned, "clean", 3))
        raise error from RuntimeError(RAISED)

    flow = bl.Dataflow("mine")
    flow.source("rows", bl.generator({"n": "id"}, rows_per_step=1)).transform("clean", lambda df: df).sink(
        "out", bl.parquet(here / "out")
    )
    planned = plan(flow)
    (here / "advised.py").write_text(
        "import boatlift as bl\nflow = bl.Dataflow('mine')\n"
        "flow.source('rows', bl.generator({'n': 'id'}, rows_per_step=1)).sink('out', bl.parquet('out'))\n"
    )
    monkeypatch.setattr("boatlift.api.running.run", fail)
    assert boatlift(monkeypatch, "run", "advised:flow", "--store", "my store; ls") == 7
    told = capsys.readouterr().err.splitlines()
    assert told[-1] == (
        f"boatlift: [USER_CODE] a function of sums raised at step 3 of sums: ValueError: {OWN_TEXT} "
        "(line 5 of /home/me/flights.py); "
        "boatlift look advised:flow --store 'my store; ls' --step clean:3 shows its rows, "
        "boatlift run advised:flow --store 'my store; ls' --skip clean:3 leaves it out"
    )
    assert f"ValueError: {OWN_TEXT}" in told, "its traceback"
