"""A batch whose epoch does not end: somebody is warning, more and more seldom."""

from __future__ import annotations

from typing import Any

import pytest

import boatlift as bl
from boatlift.api.dataflow import Dataflow
from boatlift.dataflow import plan
from boatlift.runtime.graph import program_of
from boatlift.runtime.host import sources
from boatlift.runtime.host.sources import StuckBatches
from boatlift.runtime.machine import instructions
from support.any_connector import ANY
from support.engine.machine_driver import Driver


def driver_of(policy: bl.Batch, steps: int, **options: Any) -> tuple[StuckBatches, Driver]:
    flow = Dataflow("flow")
    flow.source("rows", ANY).recompute("fit", lambda df: df, over="batch", policy=policy).sink("out", ANY)
    planned = plan(flow)
    driver = Driver(program_of(planned), epochs=1000, **options)
    go_on(driver, steps)
    return StuckBatches(planned), driver


def go_on(driver: Driver, steps: int) -> None:
    """Goes on until the source is to close the step after these: it is never idle."""
    waits = driver.go(until=lambda order: isinstance(order, instructions.PollSource) and order.time >= steps)
    driver.later.append(waits)


@pytest.fixture(autouse=True)
def _early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "WARN_AFTER", 3)


def test_it_is_warning_once_for_each_ten_times_as_much(caplog: pytest.LogCaptureFixture) -> None:
    warning, driver = driver_of(bl.Batch(seconds=1e9), 9)
    for steps, lines in ((9, 0), (10, 1), (99, 1), (100, 2), (101, 2)):
        go_on(driver, steps)
        warning.look(driver.machine.progress)
        assert len(caplog.records) == lines, f"after {steps} steps"
    assert "fit waits for the end of its epoch, which 100 steps have not brought" in caplog.text
    assert "Batch(epochs=None, seconds=1000000000.0) asks for more" in caplog.text


def test_a_process_that_ends_or_is_being_executed_is_not_warning(caplog: pytest.LogCaptureFixture) -> None:
    warning, driver = driver_of(bl.Batch(epochs=2), 9)
    warning.look(driver.machine.progress)
    warning, driver = driver_of(bl.Batch(epochs=2), 99, slow={"fit"})
    assert driver.machine.processors["fit"].running
    warning.look(driver.machine.progress)
    warning, driver = driver_of(bl.Batch(epochs=20), 19)
    warning.look(driver.machine.progress)
    assert not caplog.records
