"""`boatlift explain` and `boatlift gc`, of stores in known states."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from boatlift.console import explain, kept, shows, status, tables
from boatlift.console.explain import explanation_of, show_explanation
from boatlift.console.kept import kept_in, show_kept
from boatlift.console.shows import show_checkpoints
from boatlift.console.status import show_status
from boatlift.errors import InvalidError
from boatlift.recovery.constraints import told as told_frontier
from boatlift.storage.log import Log
from boatlift.storage.records.facts import Checkpoint, Determinant, LoggedMessage, StepDigest
from boatlift.storage.records.payloads import contents_with
from boatlift.storage.records.records import Claim, SinkCommit
from boatlift.times import EPOCH, LAST, Frontier, Sequence, all_times
from support.facts import made, run_of, saved
from support.hosts import open_store
from support.logs import claimed
from support.memory_engine import PROGRAM


def crashed(root: Path) -> Log:
    """Steps 0…6 are recorded and executed, a checkpoint is of step 3, the sinks hold all but the newest of `totals`."""
    log = claimed(open_store(root), Claim("host", 1, 1_700_000_000_000, PROGRAM, {}))
    log.append([made(time, "rows") for time in range(7)])
    log.append([StepDigest("clean", time, "d", 10, 500.0) for time in range(7)])
    log.append([StepDigest("sums", time, "d", 10, 1000.0 * time) for time in range(7)])
    log.append([SinkCommit("all", 6), SinkCommit("totals", 5), saved(3, run_of(b"state", "runs/1"))])
    return log


def test_what_everything_would_cost_at_what_it_took(tmp_path: Path) -> None:
    told = explanation_of(crashed(tmp_path), frozenset())
    assert told["failed"] == sorted(["rows", "clean", "sums", "all", "totals"])
    sums, clean = told["processors"]["sums"], told["processors"]["clean"]
    assert (sums["restored_to"], sums["steps"], sums["repeated"]) == ((3,), 3, 3)
    assert (sums["rows"], sums["seconds"]) == (30, 15.0), "4 + 5 + 6 s"
    assert (clean["steps"], clean["rows"], clean["seconds"]) == (3, 30, 1.5)
    assert clean["why_not_less"] == "sums keeps times 0…3, and clean cannot send again what comes after"


def test_who_lives_stays_and_sends_again_from_memory(tmp_path: Path) -> None:
    told = explanation_of(crashed(tmp_path), frozenset({"sums"}))["processors"]
    assert told["clean"]["stays"]
    assert told["clean"]["steps"] == 0
    assert told["sums"]["steps"] == 3
    (queue,) = [q for q in explanation_of(crashed(tmp_path), frozenset({"sums"}))["queues"] if "clean->sums" in q]
    assert queue == "the messages of 4…6 are put back on clean->sums"


def test_it_is_told_to_people_and_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path)
    show_explanation(tmp_path, ["sums"], as_json=False)
    told = capsys.readouterr().out
    assert told.startswith("If sums failed now, as far as the log knows:\n")
    assert told.index("The cost of the rollback") < told.index("sums restores its checkpoint"), "the costs come first"
    assert "its checkpoint of times 0…3" in told
    assert "sums restores its checkpoint of time 3, replays 4…6" in told
    assert "15.0" in told
    show_explanation(tmp_path, [], as_json=True)
    assert json.loads(capsys.readouterr().out)["processors"]["sums"]["steps"] == 3


def test_nothing_is_executed_again_where_all_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crashed(tmp_path).append([saved(6, run_of(b"state", "runs/2")), SinkCommit("totals", 6)])
    show_explanation(tmp_path, ["sums"], as_json=False)
    assert "Nothing is executed again." in capsys.readouterr().out


def test_who_is_not_there_cannot_fail(tmp_path: Path) -> None:
    with pytest.raises(
        InvalidError, match=r"\[BAD_OPTION\] nobody here is called sum: there are all, clean, rows, sums, totals"
    ):
        explanation_of(crashed(tmp_path), frozenset({"sum", "clean"}))


def test_what_is_kept_and_for_whom(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, store = crashed(tmp_path), open_store(tmp_path)
    message = contents_with([run_of(b"message", "runs/3"), run_of(b"state", "runs/1")], rows=1)
    log.append([LoggedMessage("clean->sums", 4, message)])
    store.create("runs/9", b"nobody's")
    kept = {each.what: each for each in kept_in(store, log)}
    assert (kept["positions"].whose, kept["positions"].times, kept["positions"].why) == (
        "rows", 7, "clean: to read the same again"
    )  # fmt: skip
    assert (kept["state"].whose, kept["state"].runs, kept["state"].size) == ("sums", 1, len(b"state"))
    assert (kept["messages"].runs, kept["messages"].size) == (1, len(b"message")), (
        "the other run is counted with the state"
    )
    assert (kept["nothing"].runs, kept["nothing"].size) == (1, len(b"nobody's"))
    show_kept(tmp_path, as_json=True)
    assert len(json.loads(capsys.readouterr().out)) == 4
    show_kept(tmp_path, as_json=False)
    assert "positions" in capsys.readouterr().out


ANSWERS = {
    "source rows": {},
    "source queries": {},
    "processor sums": {"reads": "rows", "keys": ["k"]},
    "processor asked": {"reads": "queries", "keys": [], "tables": {"live": {"reads": "sums", "keys": ["k"]}}},
    "sink answers": {"reads": "asked"},
}


def test_what_is_taken_as_it_comes_is_told_by_how_much_came_of_each(tmp_path: Path) -> None:
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, ANSWERS, {}))
    taken = ["queries->asked", "sums->asked", "queries->asked", "queries->asked", "sums->asked"]
    log.append([made(time, "rows") for time in range(2)] + [made(time, "queries") for time in range(3)])
    log.append([StepDigest("sums", time, "d", 10, 500.0) for time in range(2)])
    log.append([Determinant("asked", number, edge, None) for number, edge in enumerate(taken)])
    log.append([StepDigest("asked", number, "d", 5, 100.0) for number in range(5)])
    checkpoint = (("queries->asked", 0), ("sums->asked", 0))
    log.append(
        [Checkpoint("asked", checkpoint, contents_with([run_of(b"tables", "runs/1")])), SinkCommit("answers", 4)]
    )
    told = explanation_of(log, frozenset({"asked"}))
    assert told["processors"]["asked"]["does"] == (
        "asked restores its checkpoint of the first 1 of queries->asked and 1 of sums->asked, "
        "replays the next 2 of queries->asked and 1 of sums->asked"
    )
    assert "the messages of 1…2 are put back on queries->asked" in told["queues"]
    assert "the messages of 1 are put back on sums->asked" in told["queues"]


def test_what_is_certain_to_the_end_is_told_as_all() -> None:
    """The end of all times is a number that means nothing to people."""
    domain = Sequence(("rows->both", "others->both"))
    frontier = Frontier(domain, [("rows->both", 3), ("others->both", LAST)])
    assert told_frontier(frontier) == "the first 4 of rows->both and all of others->both"
    assert told_frontier(all_times(domain)) == "all of others->both and all of rows->both"
    assert told_frontier(all_times(EPOCH)) == "all times"


LONG = "a-name-of-a-processor-that-takes-nearly-all-of-the-sixty-four-"
EDGES = [f"{LONG}0->{LONG}{n}" for n in (1, 2)]


@pytest.mark.parametrize("on_a_terminal", [False, True], ids=["pipe", "80 columns"])
def test_no_name_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, on_a_terminal: bool
) -> None:
    program: dict[str, Any] = {"source rows": {}, f"processor {LONG}0": {"reads": "rows", "keys": []}}
    for n in (1, 2):
        program |= {
            f"processor {LONG}{n}": {"reads": f"{LONG}0", "keys": ["k"]}, f"sink out{n}": {"reads": f"{LONG}{n}"}
        }  # fmt: skip
    log = claimed(open_store(tmp_path), Claim("host", 1, 1_700_000_000_000, program, {}))
    log.append(
        [
            made(0, "rows"),
            *(LoggedMessage(edge, 0, contents_with([run_of(b"x", f"runs/{edge[-1]}")])) for edge in EDGES),
        ]
    )
    log.append([saved(0, run_of(b"x", "runs/1"), processor=f"{LONG}{n}") for n in (1, 2)])
    log.append([StepDigest(f"{LONG}{n}", time, "d", 10, 500.0) for n in (1, 2) for time in (0, 1)])
    if on_a_terminal:
        monkeypatch.setattr(tables, "console", lambda: Console(width=80, force_terminal=True, no_color=True))
        for module in (explain, kept, shows, status):
            monkeypatch.setattr(module, "console", tables.console)
    for show, names in (
        (lambda: show_kept(tmp_path, as_json=False), EDGES),
        (lambda: show_status(tmp_path, as_json=False), [f"{LONG}1", f"{LONG}2"]),
        (lambda: show_explanation(tmp_path, [], as_json=False), [f"{LONG}1", f"{LONG}2"]),
        (lambda: show_checkpoints(tmp_path, as_json=False), [f"{LONG}1", f"{LONG}2"]),
    ):
        show()
        lines = capsys.readouterr().out.splitlines()
        rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
        whole = ["".join(column) for column in zip(*rows, strict=True)]
        for name in names:
            assert any(name in column for column in whole), f"{name} is cut in {lines}"
            assert on_a_terminal or any(name in line for line in lines if "│" in line)
