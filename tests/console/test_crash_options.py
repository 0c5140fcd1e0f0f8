"""The options of `boatlift crash`: folders with `=` in their names, the command that repeats a trial, signals."""

from __future__ import annotations

import shlex
import signal
from pathlib import Path

import pytest

from boatlift.console.crash import _folders, _stop, _stop_at_signals
from boatlift.errors import InvalidError
from boatlift.processes.settings import DEFAULT_MASTER
from boatlift.testing.crash_runs import STOPPING, TIMEOUT, _again, _options


@pytest.mark.parametrize(
    ("given", "folders"),
    [
        ("data", {"": "data"}),
        ("/data/day=1", {"": "/data/day=1"}),
        ("./day=1", {"": "./day=1"}),
        ("rows=data", {"rows": "data"}),
        ("rows=/data/day=1", {"rows": "/data/day=1"}),
        ("rows=day=1", {"rows": "day=1"}),
    ],
)
def test_a_folder_may_have_an_equals_sign_in_its_name(given: str, folders: dict[str, str]) -> None:
    assert _folders((given,)) == folders


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("rows=",), "--input rows= names no folder: write FOLDER or SOURCE=FOLDER"),
        (("=data",), "--input =data names no folder: write FOLDER or SOURCE=FOLDER"),
        (("",), "--input  names no folder"),
        (("rows=a", "rows=b=1"), "--input rows=b=1 is the second folder of one source: give one"),
        (("/a=1", "/b=1"), "--input /b=1 is the second folder of one source: give one"),
    ],
)
def test_a_bad_folder_is_refused(given: tuple[str, ...], says: str) -> None:
    with pytest.raises(InvalidError, match="BAD_OPTION") as caught:
        _folders(given)
    assert says in caught.value.message


@pytest.mark.parametrize("name", ["", "rows"])
def test_the_command_that_repeats_a_trial_names_the_source_of_a_folder(name: str) -> None:
    given = {name: Path("/some data/day=1")}
    command = _again("own:flow", ["--at", "step(kept):after:1"], given, "rows", ["--steps", "2"])
    words = shlex.split(command)
    assert words[:5] == ["boatlift", "crash", "own:flow", "--at", "step(kept):after:1"]
    assert words[5:] == ["--input", "rows=/some data/day=1", "--steps", "2"]
    assert _folders((words[6],)) == {"rows": "/some data/day=1"}


def test_the_command_that_repeats_a_trial_has_all_options_that_were_given() -> None:
    assert _options(None, (), DEFAULT_MASTER, {}, TIMEOUT) == []
    options = _options(3, ["topic"], "local[1]", {"spark.sql.shuffle.partitions": "3", "a": "b=c"}, 0.25)
    assert shlex.join(options) == (
        "--steps 3 --in-parquet topic --master 'local[1]' --conf spark.sql.shuffle.partitions=3 --conf a=b=c "
        "--timeout 0.25"
    )
    assert _options(None, (), DEFAULT_MASTER, {}, 1800.0) == ["--timeout", "1800"]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_lost_connection_ends_a_crash_test_but_under_nohup(ignored: bool) -> None:
    before = {number: signal.getsignal(number) for number in STOPPING}
    try:
        signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
        _stop_at_signals()
        found = {number: signal.getsignal(number) for number in STOPPING}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert found.pop(signal.SIGHUP) is (signal.SIG_IGN if ignored else _stop)
    assert found == {signal.SIGINT: _stop, signal.SIGTERM: _stop}
