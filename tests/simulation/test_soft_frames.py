"""A fold of frames is what the machine has in memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from unittest.mock import patch

import pytest

from boatlift.runtime.machine.soft_frames import SoftFrames
from boatlift.simulation.simulation import Simulation
from boatlift.storage.records.soft_checkpoints import SoftCheckpoint, SoftFrame
from boatlift.times import Maximal, read_frontier

_take = SoftFrames.take


def meaning(memory: SoftCheckpoint, needless: dict[str, Maximal]) -> dict[str, Any]:
    """Return what a successor goes on with: frontier, state, and the messages that some receiver may need."""
    return {
        name: (
            part.done,
            part.state,
            {
                edge: {t: m for t, m in messages.items() if not gone(edge, t, needless)}
                for edge, messages in memory.sent(name).items()
            },
        )
        for name, part in memory.parts.items()
    }


def gone(edge: str, time: Any, needless: dict[str, Maximal]) -> bool:
    return edge in needless and read_frontier(needless[edge]).contains(time)


@pytest.mark.parametrize("seed", range(40))
def test_a_fold_of_frames_is_the_memory(seed: int) -> None:
    folds: dict[int, tuple[SoftCheckpoint, dict[str, Maximal]]] = {}
    compared = 0

    def take(self: SoftFrames, failed: Iterable[str]) -> SoftFrame:
        nonlocal compared
        frame = _take(self, failed)
        fold, needless = folds.setdefault(id(self), (SoftCheckpoint(), {}))
        fold.apply(frame)
        needless |= frame.needless
        processors = {name: p for name, p in self._of.items() if name not in failed}
        whole = SoftCheckpoint.of([_take(SoftFrames(processors, self._durable), ())])
        assert meaning(fold, needless) == meaning(whole, needless)
        assert fold.waiting == whole.waiting
        assert SoftCheckpoint.of([fold.frame()]).frame() == fold.frame()
        assert not set(failed) & fold.parts.keys()
        compared += 1
        kept.append(self)  # an id is of one machine as long as that lives
        return frame

    kept: list[SoftFrames] = []
    with patch.object(SoftFrames, "take", take):
        Simulation(seed).run()
    assert compared > 3
