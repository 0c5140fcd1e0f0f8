"""What is durable when a sink shows a step."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from boatlift.dataflow import Outcome
from boatlift.storage.local import LocalStore
from boatlift.storage.log import Log
from boatlift.storage.log_reader import LOG
from boatlift.storage.records.codec import decode_group
from boatlift.storage.records.facts import Determinant, StepDigest
from support.engine.hosts import PATIENCE, open_store, run
from support.engine.memory_engine import MemoryEngine, World
from support.worlds.facts import Unsynced


class HoldingStore(LocalStore):
    """A store that refuses a result of `sums` before its sink shows the step, unless the sink waits for that group."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.shown = threading.Event()

    def create(self, name: str, content: bytes | Path) -> None:
        if name.startswith(LOG) and isinstance(content, bytes):
            _, records = decode_group(content, name)
            waited_for = any(isinstance(record, Determinant) for record in records)
            if not waited_for and any(isinstance(r, StepDigest) and r.processor == "sums" for r in records):
                assert self.shown.wait(PATIENCE), "the sink waits for what need not be durable"
        super().create(name, content)


def test_a_steps_input_is_durable_before_a_sink_shows_it_and_its_output_may_follow(tmp_path: Path) -> None:
    store = HoldingStore.open(tmp_path, create=True, filesystem=Unsynced())

    class LookingEngine(MemoryEngine):
        def commit(self, sink: str, time: int, payload: Any) -> Outcome:
            assert time <= Log.open(open_store(tmp_path), "flow").history.last_closed("rows")
            outcome = super().commit(sink, time, payload)
            if sink == "totals":
                store.shown.set()
            return outcome

    world = World(rows=3)
    run(LookingEngine(world), store)
    world.check()
