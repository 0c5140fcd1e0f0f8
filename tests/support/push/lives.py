"""Processes that run a dataflow with pushes over HTTP, one after the other, until they are killed at a told point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["PATIENCE", "PushLives"]

TESTS = Path(__file__).parents[2]
PATIENCE = 120.0


class PushLives:
    """Incarnations of a dataflow in one folder; the environment tells it where to listen."""

    def __init__(self, folder: Path, environment: Mapping[str, str], flow: str) -> None:
        self.folder, self._environment, self._flow = folder, environment, flow

    @contextmanager
    def incarnation(self, port: int, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [sys.executable, "-m", "boatlift.testing.crash", self._flow, "--store", "store"]
        told = {**os.environ, **self._environment, "PYTHONPATH": str(TESTS), "PUSH_AT": f"127.0.0.1:{port}"}
        with (self.folder / "log.txt").open("a") as log:
            process = subprocess.Popen([*command, *arguments], cwd=self.folder, env=told, stdout=log, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def told(self) -> str:
        return (self.folder / "log.txt").read_text()[-3000:]
