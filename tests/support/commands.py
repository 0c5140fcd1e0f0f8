"""`boatlift` as a shell starts it, in a folder with the program `mine.py`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from boatlift.console.app import app

__all__ = ["begun", "boatlift", "exit_status", "jvm_of", "without_java"]

COMMAND = (sys.executable, "-u", "-m", "boatlift.console")


def boatlift(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )


def exit_status(words: list[str]) -> object:
    """Run a command in this process; return its exit status."""
    try:
        app(words, result_action="return_value", exit_on_error=False)
    except SystemExit as ended:
        return ended.code
    return 0


@contextmanager
def begun(
    folder: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """Begin a command in a process group of its own, and kill what is left of it."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(
        [*COMMAND, *arguments], cwd=folder, env=environment, text=True, start_new_session=True, **pipes
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def jvm_of(process: subprocess.Popen[str]) -> int | None:
    """Return the process id of the JVM that a command has started, None if it has none yet."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except FileNotFoundError:  # it has ended
            continue
        if b"org.apache.spark.deploy.SparkSubmit" in command:
            return int(child)
    return None


def without_java(folder: Path) -> dict[str, str]:
    """Return an environment in which no Java can be found."""
    (folder / "bin").mkdir(exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "PYSPARK_GATEWAY_PORT")}
    return {**kept, "PATH": str(folder / "bin")}
