"""`boatlift console` as a process of its own: it needs a store, and neither Spark, nor Java, nor the program."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import boatlift as bl
from boatlift.console.serve import console
from support.commands import boatlift, without_java
from support.engine.hosts import crashed
from support.pages import blocks

WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = sys.modules["py4j"] = sys.modules["pandas"] = None
from boatlift.console import main
main()
"""


@contextmanager
def shown(folder: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the address that it prints."""
    command = [sys.executable, "-u", "-c", WITHOUT_SPARK, "console", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=folder, env=without_java(folder), text=True, **pipes)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            pytest.fail(process.communicate()[1])
        yield process, url
    finally:
        process.kill()
        process.communicate()


def status(url: str) -> dict[str, object]:
    place, _, token = url.partition("#token=")
    request = urllib.request.Request(f"{place}api/v1/status", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        found: dict[str, object] = json.load(answer)
        return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_a_store_without_spark_or_java_until_it_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    crashed(tmp_path / "store")
    (block,) = blocks("Console")
    command = shlex.split(block.text, comments=True)
    assert command[:2] == ["boatlift", "console"]
    with shown(tmp_path, *command[2:], "--listen", "127.0.0.1:0") as (process, url):
        assert url.startswith("http://127.0.0.1:")
        assert status(url)["sinks"] == {"all": 6, "totals": 5}
        process.send_signal(number)
        assert process.wait(60) == 0


def test_a_taken_port_is_told_and_the_next_one_taken(tmp_path: Path) -> None:
    crashed(tmp_path / "store")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with shown(tmp_path, "--store", "store", "--listen", f"127.0.0.1:{port}") as (process, url):
            assert status(url)["dataflow"] == "flow"
            process.terminate()
            assert process.stderr is not None
            assert f"boatlift: port {port} of 127.0.0.1 is taken: the console takes " in process.stderr.read()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "nothing"), "[STORE_NOT_FOUND]"),
        (("--store", "store", "--listen", "here"), "[BAD_OPTION] listen is 'here': give host:port"),
        (
            ("--store", "store", "--listen", "0.0.0.0:0"),
            "[BAD_OPTION] the console at 0.0.0.0:0 is seen from other hosts",
        ),
    ],
)
def test_what_cannot_be_served_is_told(
    tmp_path: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOATLIFT_CONSOLE_TOKEN", raising=False)
    crashed(tmp_path / "store")
    done = boatlift(tmp_path, "console", *arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crashed(tmp_path)
    monkeypatch.setenv("BOATLIFT_CONSOLE_TOKEN", "short")
    with pytest.raises(bl.InvalidError, match=r"\[BAD_OPTION\] BOATLIFT_CONSOLE_TOKEN has 5 characters"):
        console(store=str(tmp_path), listen="127.0.0.1:0")
