"""An option by its old name says the new one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import boatlift as bl

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
