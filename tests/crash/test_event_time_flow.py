"""The flow of event time and of a loop is killed: every step of it is that of an undisturbed run."""

from __future__ import annotations

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from support.crash.event_time_rows import make_events, sees_the_same_steps
from support.crash.tests import Undisturbed, Victim, die_at_every_point, die_at_every_point_of_a_recovery

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

VICTIM = Victim(
    flow="support.crash.event_time:flow",
    judge=sees_the_same_steps,
    middle=CrashPoint("sink.commit(windows_out)", "after", 5),
    acts=(
        "step(timely)",
        "step(ended)",
        "step(silent)",
        "step(walking)",
        "step(kept)",
        "step(sessions)",
        "sink.commit(windows_out)",
    ),
    points=3,
    again=(
        "restore(timely)",
        "restore(ended)",
        "restore(silent)",
        "restore(walking)",
        "restore(kept)",
        "restore(sessions)",
    ),
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
