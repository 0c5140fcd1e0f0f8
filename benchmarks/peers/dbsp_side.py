"""The peer in DBSP: `dbsp_peer/`, a Rust program that cargo builds, a process for each query and turn.

It keeps all in memory, writes nothing before the clock has stopped, and recovers nothing: what incremental computation
itself costs. It is compiled ahead, so there is nothing to warm up.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

from benchmarks.harness.data import ARTIFACTS

__all__ = ["NoCircuitError", "nexmark", "top", "why_not"]

CRATE = Path(__file__).with_name("dbsp_peer")
TARGET = ARTIFACTS / "dbsp"
NO_CIRCUIT = 3


class NoCircuitError(Exception):
    """There is no circuit of a query."""


def why_not() -> str:
    """Return why DBSP is left out, in words; an empty text if it can run. The program is built."""
    if shutil.which("cargo") is None:
        return "its side is built by cargo, and there is no cargo (install Rust)"
    environment = os.environ | {"CARGO_TARGET_DIR": str(TARGET)}
    built = subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=CRATE, env=environment, check=False)
    return "cargo could not build it: see above" if built.returncode else ""


def nexmark(query: str, events: Path, output: Path) -> Sequence[float]:
    """Run a Nexmark query over all steps; return the seconds after which each step's changes were there.

    Raises:
        NoCircuitError: The query is not written.
    """
    return list(accumulate(ms / 1000 for ms in _ran("nexmark", query, events, output / "changes.tsv")))


def top(steps: Sequence[Path], output: Path) -> Sequence[float]:
    """Run the query of `view_top` over files of changes; return the milliseconds of each."""
    return _ran("top", output / "changes.tsv", *steps)


def _ran(*told: str | Path) -> list[float]:
    done = subprocess.run([TARGET / "release" / "dbsp_peer", *told], stdout=subprocess.PIPE, check=False, text=True)
    if done.returncode == NO_CIRCUIT:
        raise NoCircuitError(f"there is no circuit of {told[1]}")
    done.check_returncode()
    times: list[float] = json.loads(done.stdout)
    return times
