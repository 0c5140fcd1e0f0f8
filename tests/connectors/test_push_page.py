"""The page about pushes: its programs run, and its commands print what is printed below them."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import boatlift as bl
from support.commands import exit_status
from support.pages import blocks
from support.waiting import until


def boats() -> list[tuple[str, int]]:
    with closing(sqlite3.connect("shop.db")) as database:
        return database.execute("SELECT * FROM stock").fetchall()


@pytest.mark.usefixtures("spark")
def test_pushes_from_python_and_by_curl_are_answered_as_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert shutil.which("curl"), "the page's commands are curl's: install it"
    source, pushing, inserting, keyed, answering = blocks("Push rows", "python")
    (typed_insert,) = blocks("Push rows", "sh")
    typed, asking = blocks("Push rows", "")
    with closing(socket.socket()) as free, closing(socket.socket()) as other:
        free.bind(("127.0.0.1", 0))
        other.bind(("127.0.0.1", 0))
        port, to_ask = str(free.getsockname()[1]), str(other.getsockname()[1])
    names: dict[str, Any] = {"bl": bl, "flow": bl.Dataflow("pages")}
    exec(compile(source.text.replace("8080", port), "a page", "exec"), names)
    names["orders"].sink("taken", bl.parquet("taken"))
    exec(compile(keyed.text, "a page", "exec"), names)
    exec(compile(answering.text.replace("8081", to_ask), "a page", "exec"), names)
    exec(compile(pushing.text, "a page", "exec"), names)
    try:
        commands = typed.text.replace("localhost:8080", f"localhost:{port}")
        for command, answer in re.findall(r"^(curl.+)\n# (.+)$", commands, re.MULTILINE):
            done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=True)
            assert done.stdout == answer
        assert commands.count("curl") == 2
        assert names["flow"].pushed("orders", "4712").rows == 1
        names["flow"].push("stock", [{"item": "lock", "pieces": 1}])
        exec(compile(keyed.text.rpartition("# ")[2], "a page", "exec"), names)
        until(lambda: names["running"].status().state == "alive" and boats() == [("boat", 3)])
        monkeypatch.setattr("boatlift.api.named.load_flow", lambda *_: names["flow"])
        monkeypatch.setattr("boatlift.api.named.check_flow", lambda _: None)
        exec(compile(inserting.text, "a page", "exec"), names)
        assert exit_status(shlex.split(typed_insert.text)[1:]) == 0
        until(lambda: boats() == [("boat", 6)] and names["flow"].pushed("orders", "4715") is not None)
        names["flow"].push("stock", [{"item": "boat", "pieces": 3}])
        until(lambda: boats() == [("boat", 3)])
        for command, answer in re.findall(r"^(curl.+)\n# (.+)$", asking.text, re.MULTILINE):
            command = command.partition("   ")[0].replace("8081", to_ask)
            done = subprocess.run(["sh", "-ec", command], capture_output=True, text=True, check=True)
            assert done.stdout == answer
    finally:
        names["running"].stop()
    bl.run(names["flow"], "store", available_now=True)  # rows that were recorded, and not taken before the stop
    taken = pq.read_table(tmp_path / "taken").to_pylist()
    assert sorted((row["id"], row["item"], row["price"]) for row in taken) == [
        (1, "boat", 9.5), (2, "lock", 1.5), (3, "oar", 4.5), (4, "rope", 2.0), (5, "sail", None),
    ]  # fmt: skip
    assert boats() == [("boat", 3)]
