"""Views are killed in rounds of the long-running job: every step of them is that of an undisturbed run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from support.crash.event_time_rows import STEPS, make_events, steps_of_files
from support.crash.tests import Undisturbed, Victim, die_at_every_point, die_at_every_point_of_a_recovery

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]


def sees_the_same_steps(folder: Path, undisturbed: Path) -> None:
    """Every step of every sink has the rows that it has in an undisturbed run, in the same order."""
    rounds = Counter(line.split()[0] for line in (folder / "rounds.txt").read_text().splitlines())
    # The first step of a view has a plan of its own; a view of several jobs goes round with each.
    assert all(rounds[view] >= STEPS - 1 for view in ("sums", "pairs", "most", "top")), rounds
    for sink in ("sums", "pairs", "most", "top"):
        expected = steps_of_files(undisturbed / sink)
        assert len(expected) == STEPS
        assert sum(map(len, expected.values())) >= STEPS, f"{sink} has rows"
        assert steps_of_files(folder / sink) == expected


VICTIM = Victim(
    flow="support.crash.rounds:flow",
    judge=sees_the_same_steps,
    middle=CrashPoint("sink.commit(most_out)", "after", 5),
    acts=("step(sums)", "step(pairs)", "step(most)", "step(top)", "sink.commit(sums_out)", "sink.commit(most_out)"),
    points=3,
    again=("restore(sums)", "restore(most)", "restore(top)"),
    outcome="step for step equal",
    make_input=make_events,
)


def test_every_crash_point_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


def test_every_crash_point_of_a_recovery_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point_of_a_recovery(undisturbed, tmp_path_factory.mktemp, warm_jvm)
