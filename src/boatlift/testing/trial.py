"""The folder of a trial, between a crash test and the processes that it runs.

ROOT/asked.json          steps, folders of input, sinks in Parquet
ROOT/bounds.json         the bounds of the sources: made by the first process, with ROOT/input
ROOT/TRIAL/sinks/        the twins
ROOT/TRIAL/held/SINK.jsonl   what they hold, once a process has come to the end
ROOT/TRIAL/error         why a process ended otherwise
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from boatlift.dataflow import Plan
from boatlift.dataflow.contracts import SinkTwin
from boatlift.errors import BoatliftError, InternalError, from_text, to_text
from boatlift.testing.held import RowsOfSink
from boatlift.testing.twins import bounds_of, twinned, write_held

__all__ = ["Trial", "ask"]


def ask(root: Path, steps: int | None, given: Mapping[str, Path], in_parquet: Sequence[str]) -> None:
    """Write what all trials below a root have in common."""
    folders = {name: str(folder) for name, folder in given.items()}
    asked = {"steps": steps, "given": folders, "in_parquet": list(in_parquet)}
    (root / "asked.json").write_text(json.dumps(asked), encoding="utf-8")


class Trial:
    """A trial, by its folder."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._twins: dict[str, SinkTwin] = {}

    def twinned(self, plan: Plan) -> Plan:
        """Return the plan of the trial: with the twins of this trial, and with the bounds of all trials."""
        asked = json.loads((self.folder.parent / "asked.json").read_text("utf-8"))
        sinks, kept = self.folder / "sinks", self.folder.parent / "bounds.json"
        sinks.mkdir(parents=True, exist_ok=True)
        if not kept.exists():
            given = {name: Path(folder) for name, folder in asked["given"].items()}
            bounds = bounds_of(plan, self.folder.parent / "input", asked["steps"], given)
            kept.with_suffix(".draft").write_text(json.dumps(bounds), encoding="utf-8")
            kept.with_suffix(".draft").rename(kept)
        found, self._twins = twinned(plan, sinks, json.loads(kept.read_text("utf-8")), asked["in_parquet"])
        return found

    def write_held(self) -> None:
        """Write what the twins hold now."""
        write_held(self._twins, self.folder / "held")

    def held(self) -> dict[str, RowsOfSink]:
        """Read what the twins hold, after the last process has come to the end."""
        found = {}
        for path in sorted((self.folder / "held").glob("*.jsonl")):
            with path.open(encoding="utf-8") as lines:
                found[path.stem] = RowsOfSink.read(lines)
        return found

    def error(self) -> BoatliftError | None:
        """Return the error with which the last process ended, if it ended with one."""
        path = self.folder / "error"
        return from_text(path.read_text("utf-8")) if path.exists() else None

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Leave the error of this process where `error` finds it."""
        path = self.folder / "error"
        path.unlink(missing_ok=True)
        try:
            yield
        except Exception as raised:  # noqa: BLE001 - the crash test tells it
            traceback.print_exc()
            unknown = InternalError("INTERNAL", f"a run of a crash test raised {raised!r}")
            error = raised if isinstance(raised, BoatliftError) else unknown
            draft = path.with_suffix(".draft")
            draft.write_text(to_text(error), encoding="utf-8")
            draft.rename(path)
            sys.exit(error.exit_code)
