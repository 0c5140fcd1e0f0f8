"""A notebook whose kernel is interrupted while a dataflow runs: the cell ends, and the dataflow goes on."""

from __future__ import annotations

from pathlib import Path
from queue import Empty
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from boatlift.runtime.inspect.status import status_at
from support.waiting import until

pytestmark = pytest.mark.spark

BEGIN = """
import time
import boatlift as bl
from pyspark.sql import functions as F

flow = bl.Dataflow("kept")
rows = flow.source("rows", bl.files("rows/*.csv", schema="k LONG"))
sums = rows.group_by("k").agg("sums", F.count("*").alias("n"))
sums.sink("out", bl.sqlite("out.db", table="sums", key=["k"]))
running = bl.start(flow, "store")
"""
WAIT = "running.show()\nprint('waits', flush=True)\nrunning.wait()"


class Kernel:
    """A kernel of this Python, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.manager = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(folder))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> Any:
        """Execute a cell to its end; return the content of its reply."""
        return self.reply(self.client.execute(code))

    def reply(self, asked: str) -> Any:
        """Return the content of the reply to a cell."""
        while True:
            message = self.client.get_shell_msg(timeout=120)
            if message["parent_header"].get("msg_id") == asked:
                return message["content"]

    def printed(self, text: str) -> None:
        """Wait until a cell prints a text."""
        while True:
            message = self.client.get_iopub_msg(timeout=120)
            if message["msg_type"] == "stream" and text in message["content"]["text"]:
                return

    def shown(self) -> int:
        """Return how many displays have come since the last call."""
        number = 0
        try:
            while True:
                number += self.client.get_iopub_msg(timeout=0.1)["msg_type"] == "update_display_data"
        except Empty:
            return number

    def end(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def put(folder: Path, number: int) -> None:
    written = folder / f"{number}.new"
    written.write_text("k\n1\n2\n", encoding="utf-8")
    written.rename(folder / "rows" / f"{number:04}.csv")


def shown_by(store: Path) -> int:
    """Return the last step that the sink of a run shows, as the run reports it."""
    activity = status_at(store).activity
    return -1 if activity is None else activity.sinks.get("out", -1)


def test_an_interrupted_cell_leaves_the_run_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    put(tmp_path, 0)
    kernel = Kernel(tmp_path)
    try:
        assert kernel.run(BEGIN)["status"] == "ok"
        waits = kernel.client.execute(WAIT)
        kernel.printed("waits")
        kernel.manager.interrupt_kernel()
        reply = kernel.reply(waits)
        assert (reply["status"], reply["ename"]) == ("error", "KeyboardInterrupt")
        put(tmp_path, 1)
        until(lambda: shown_by(tmp_path / "store") == 1)
        assert status_at(tmp_path / "store").state == "alive"
        until(lambda: kernel.shown() > 0)  # it is still drawn
        sleeps = kernel.client.execute("print('sleeps', flush=True); time.sleep(600)")
        kernel.printed("sleeps")
        kernel.manager.interrupt_kernel()
        assert kernel.reply(sleeps)["ename"] == "KeyboardInterrupt"
        ended = kernel.run("running.stop(); running.wait()")
        assert ended["status"] == "ok", ended
        status = status_at(tmp_path / "store")
        assert (status.state, status.sinks) == ("stopped", {"out": 1})
    finally:
        kernel.end()
