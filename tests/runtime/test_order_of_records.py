"""What of a step is durable when a sink is handed it: its input surely, its output perhaps not."""

from __future__ import annotations

from pathlib import Path

from boatlift.dataflow import Outcome
from boatlift.runtime.instructions import Commit
from boatlift.storage.log import Log
from support.hosts import open_store, run
from support.memory_engine import MemoryEngine, World


def test_a_steps_input_is_durable_before_a_sink_shows_it_and_its_output_may_follow(tmp_path: Path) -> None:
    outputs_known = []

    class LookingEngine(MemoryEngine):
        def commit(self, order: Commit) -> Outcome:
            history = Log.open(open_store(tmp_path), "flow").history
            assert order.time <= history.last_input("rows")
            outputs_known.append(order.time in history.outputs.get("sums", {}))
            return super().commit(order)

    run(LookingEngine(World(rows=3)), open_store(tmp_path))
    assert outputs_known
    assert not all(outputs_known)
