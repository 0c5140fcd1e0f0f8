"""The arguments of commands: what the parser refuses is told as other errors are."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from boatlift.console.app import app, main

pytestmark = pytest.mark.filterwarnings("ignore:Cyclopts application invoked without tokens")


def ends_with(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run a command in this process and return its exit status."""
    monkeypatch.setattr(sys, "argv", ["boatlift", *arguments])
    monkeypatch.delenv("BOATLIFT_STORE", raising=False)
    with pytest.raises(SystemExit) as ended:
        main()
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run", "boatlift run needs a value for FLOW; boatlift run --help"),
        ("run x:flow", "boatlift run needs a value for --store; boatlift run --help"),
        ("run x:flow -s", "boatlift run needs a value for -s; boatlift run --help"),
        ("run x:flow --store s --nope", "boatlift run has no option --nope; boatlift run --help"),
        ("run --sotre s x:flow", "boatlift run has no option --sotre: write --store; boatlift run --help"),
        ("run x:flow --sotre s", "boatlift run has no option --sotre: write --store; boatlift run --help"),
        ("run x:flow --store s --not-resident", "boatlift run has no option --not-resident: write --short-jobs"),
        ("run x:flow --store s --conf", "boatlift run needs a value for --conf; boatlift run --help"),
        ("status --store s more", "boatlift status has no place for more: leave it out; boatlift status --help"),
        ("statu --store s", "there is no command statu: write status; boatlift --help"),
        ("zzz", "there is no command zzz; boatlift --help"),
        ("start x:flow", "there is no command start: write run; boatlift --help"),
        ("stop", "there is no command stop: press Ctrl-C where it runs, or send SIGTERM to its process, which"),
        ("run x:flow --store s --master", "boatlift run needs a value for --master; boatlift run --help"),
        ("simulate --seed x", 'invalid value for --seed: unable to convert "x" into int; boatlift simulate --help'),
    ],
)
def test_arguments_that_cannot_be_read_are_one_line_with_a_condition(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, said: str
) -> None:
    assert ends_with(monkeypatch, *arguments.split()) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"boatlift: [BAD_OPTION] {said}")
    assert told.err.endswith(" shows what there is\n")
    assert told.err.count("\n") == 1


@pytest.mark.parametrize("command", ["", *(name for name in app if not name.startswith("-"))])
def test_help_shows_only_options_and_defaults_that_mean_something(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    assert ends_with(monkeypatch, *command.split(), "--help") == 0
    shown = capsys.readouterr().out
    assert "Usage: boatlift" in shown
    for nonsense in ("--empty-", "--no-", "default: ()", 'default: ""', "default: None"):
        assert nonsense not in shown


@pytest.mark.parametrize("option", ["skip", "conf"])
def test_an_option_that_may_be_repeated_cannot_be_emptied(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    assert ends_with(monkeypatch, "run", "x:flow", "--store", "s", f"--empty-{option}") == 2
    assert f"[BAD_OPTION] boatlift run has no option --empty-{option}" in capsys.readouterr().err


def test_an_option_that_may_be_repeated_takes_one_value_each_time() -> None:
    _, bound, _ = app.parse_args(["run", "--skip", "a:1", "--skip", "b:2", "--conf", "x=1", "m:flow", "--store", "s"])
    assert bound.kwargs["skip"] == ("a:1", "b:2")
    assert bound.kwargs["conf"] == ("x=1",)
    assert bound.args == ("m:flow",)


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    environment = {**os.environ, "HOME": str(tmp_path), "SHELL": "/bin/bash"}
    installed = [sys.executable, "-m", "boatlift.console", "--install-completion"]
    subprocess.run(installed, env=environment, check=True, capture_output=True)
    (script,) = tmp_path.rglob("completions/*")
    asked = "COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _boatlift; echo ${COMPREPLY[@]}"
    lines = [f"source {script}", f"COMP_WORDS=(boatlift st); {asked}", f"COMP_WORDS=(boatlift log --ta); {asked}"]
    done = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["status", "--tail"]
