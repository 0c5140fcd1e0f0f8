"""A call that does not fit its function is `[BAD_OPTION]`, and says what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import boatlift as bl
from boatlift.console.app import app
from boatlift.runtime.host.context import RunOptions

ROWS = bl.generator({"n": "id"}, rows_per_step=1, steps=1)


def flow() -> bl.Dataflow:
    return bl.Dataflow("flow")


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (lambda: flow().source("rows", ROWS, patience="1 hour"), "source has no option patience: write retry_for=…"),
        (
            lambda: flow().iterate("l", lambda rows: rows, max_rounds=3),
            "iterate has no option max_rounds: write max_iter",
        ),
        (lambda: flow().source("r", ROWS).iterate("l", None, max_rounds=3), "max_rounds: write max_iterations=…"),
        (lambda: bl.run(flow(), Path("s"), resident=False), "run has no option resident: write long_running=…"),
        (lambda: bl.start(flow(), Path("s"), resident=False), "start has no option resident: write long_running=…"),
    ],
)
def test_an_old_name_says_the_new_one(call: Any, advice: str) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]") as raised:
        call()
    assert advice in str(raised.value)
    assert not Path("s").exists()


@pytest.mark.parametrize(
    ("call", "advice"),
    [
        (
            lambda rows: rows.with_watermark("n", "10 minutes"),
            "Stream.with_watermark lacks late_by: write name=…, column=…, late_by=…",
        ),
        (lambda rows: rows.sink(bl.stdout()), "Stream.sink lacks sink: write name=…, sink=…"),
        (lambda rows: rows.transform("t", lambda df: df, polcy=None), "has no option polcy: write policy"),
        (lambda rows: rows.group_by("n").agg(), "Grouped.agg lacks name: write name=…"),
        (lambda rows: rows.group_by("n").top_n("best", 3), "Grouped.top_n lacks"),
        (lambda rows: rows.union("all", policy=None, other=rows), "Stream.union has no option other"),
        (lambda rows: rows.dataflow.sql("v"), "Dataflow.sql lacks"),
        (lambda rows: bl.run(rows.dataflow), "bl.run lacks store: write store=…"),
        (lambda rows: bl.plan(), "bl.plan lacks flow: write flow=…"),
        (lambda rows: bl.status("s", "t"), "bl.status takes store alone without a name"),
    ],
)
def test_a_call_that_does_not_fit_says_what_to_write(call: Any, advice: str) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]") as raised:
        call(flow().source("rows", ROWS))
    assert advice in str(raised.value)
    assert isinstance(raised.value, TypeError), "as Python itself raises for such a call"


@pytest.mark.parametrize(
    ("options", "advice"),
    [
        ({"pause": "rows"}, "pause='rows' is one text: write pause=['rows']"),
        ({"skip": ["t:5"]}, "skip has 't:5': write a pair, such as ('clean', 7)"),
    ],
)
def test_an_option_of_a_run_that_is_no_list_of_its_kind_says_what_to_write(options: Any, advice: str) -> None:
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\]") as raised:
        RunOptions(**options)
    assert advice in str(raised.value)


def test_a_command_that_is_no_function_is_named() -> None:
    alone = {each for each in app if not each.startswith("-") and each.replace("-", "_") not in bl.__all__}
    alone -= {"console"}  # the package of the commands
    assert alone == bl._COMMANDS_ALONE
    for command in alone:
        with pytest.raises(AttributeError, match=f"the command boatlift {command} does it"):
            getattr(bl, command.replace("-", "_"))
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = bl.nothing
