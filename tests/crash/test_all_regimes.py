"""The flow of all regimes is killed: what it leaves is what one execution leaves."""

from __future__ import annotations

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from support.crash.judges import is_one_execution
from support.crash.tests import (
    Undisturbed,
    Victim,
    die_at_every_point,
    die_at_every_point_of_a_recovery,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

VICTIM = Victim(
    flow="support.crash.regimes:flow",
    judge=is_one_execution,
    middle=CrashPoint("sink.commit(told)", "after", 12),
    acts=("step", "sink.commit", "store.create(runs)"),
    points=8,
    again=("restore", "step"),
    outcome="as one execution",
)


def test_every_crash_point_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


def test_every_crash_point_of_a_recovery_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point_of_a_recovery(undisturbed, tmp_path_factory.mktemp, warm_jvm)
