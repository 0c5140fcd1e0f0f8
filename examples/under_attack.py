"""Running a pipeline as a process of its own, perhaps to its death: what the demos share."""

from __future__ import annotations

import os
import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["HERE", "OUTPUT", "WrongError", "exact", "rows_of", "run", "say", "verify", "watchable"]

HERE = Path(__file__).resolve().parent
OUTPUT = HERE.parent / "demo-output"

SILENCE = 20.0
"""After so many seconds without a line, a demo says what the pipeline does."""


class WrongError(Exception):
    """A result that is not as it should be."""


def say(text: str) -> None:
    """Print a line about the progress of the demo."""
    print(f"• {text}", flush=True)


@contextmanager
def watchable(folder: Path) -> Iterator[None]:
    """Serve a page about a store, from when there is one to the end of the block, through all deaths of its owner."""
    over = threading.Event()

    def serve() -> None:
        log = folder / "store" / "log"
        while not (log.exists() and any(log.iterdir())):
            if over.wait(0.2):
                return
        command = [sys.executable, "-m", "boatlift.console", "console", "--store", str(folder / "store"), "--quiet"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            if address := process.stdout.readline().strip():  # else it has ended, and said why
                say(f"  watch it in a browser: {address}")
            over.wait()
            process.terminate()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(folder: Path, flow: str, at: str | None = None, *, evolve: str = "", rewind: str = "") -> bool:
    """Run a pipeline in a folder until its input is exhausted, or a crash point is reached.

    Args:
        folder: The working folder.
        flow: The dataflow, as `boatlift run` takes it.
        at: The crash point at which it is killed.
        evolve: The id of the plan by which the store's program changes.
        rewind: With `at`: the restore point to go back to.

    Returns:
        Whether the process was killed.
    """
    module = ["-m", "boatlift.testing.crash"] if at else ["-m", "boatlift.console", "run"]
    attack = [*(["--at", at] if at else []), *(["--evolve", evolve] if evolve else [])]
    attack += ["--rewind", rewind] if rewind else []
    command = [sys.executable, *module, flow, "--store", "store", "--available-now", *attack]
    # Each of these JVMs lives for some seconds only: the optimising compiler would cost more than it gains.
    environment = {"SPARK_SUBMIT_OPTS": "-XX:TieredStopAtLevel=1", **os.environ, "PYTHONPATH": str(HERE)}
    log = folder / "log.txt"
    began = time.monotonic()
    with (
        log.open("a") as out,
        subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT) as process,
    ):
        while (status := _ended(process)) is None:
            *_, last = log.read_text().splitlines() or [""]
            doing = "on its way to the kill" if at else last.removeprefix("boatlift: ")[:100]
            say(f"  … {time.monotonic() - began:.0f} s: {doing}")
    if status not in (0, -signal.SIGKILL):
        raise WrongError(f"a run ended with status {status}; its output is in {log}: {log.read_text()[-600:]}")
    return status == -signal.SIGKILL


def _ended(process: subprocess.Popen[bytes]) -> int | None:
    """Return the status of a process, or None after a while in which it runs."""
    try:
        return process.wait(SILENCE)
    except subprocess.TimeoutExpired:
        return None


def rows_of(folder: Path, query: str, name: str = "answers.db") -> list[tuple[Any, ...]]:
    """Query a database of answers; a table that does not exist yet has no rows."""
    with sqlite3.connect(folder / name) as database:
        try:
            return database.execute(query).fetchall()
        except sqlite3.OperationalError as error:
            if "no such table" in str(error):
                return []
            raise


def exact(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with floats as text of their bits."""
    return [tuple(struct.pack("<d", v).hex() if isinstance(v, float) else v for v in row) for row in rows]


def verify(folder: Path) -> None:
    """Check every durable byte of the store."""
    command = [sys.executable, "-m", "boatlift.console", "verify", "--store", str(folder / "store")]
    status = subprocess.run(command, capture_output=True, text=True, check=False)
    if status.returncode != 0:
        raise WrongError(f"the store does not verify: {status.stdout}{status.stderr}")
    say("every durable byte of the attacked store verifies")
