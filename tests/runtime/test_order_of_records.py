"""What of a step is durable when a sink is handed it: its input surely, its output perhaps not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from boatlift.dataflow import Outcome
from boatlift.runtime.graph import last_closed
from boatlift.storage.log import Log
from support.hosts import open_store, run
from support.memory_engine import MemoryEngine, World


def test_a_steps_input_is_durable_before_a_sink_shows_it_and_its_output_may_follow(tmp_path: Path) -> None:
    outputs_known = []

    class LookingEngine(MemoryEngine):
        def commit(self, sink: str, time: int, content: Any) -> Outcome:
            history = Log.open(open_store(tmp_path), "flow").history
            assert time <= last_closed(history, "rows")
            outputs_known.append(time in history.standing.results.get("sums", {}))
            return super().commit(sink, time, content)

    run(LookingEngine(World(rows=3)), open_store(tmp_path))
    assert outputs_known
    assert not all(outputs_known)
