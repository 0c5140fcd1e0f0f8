"""The first flow is killed: what it leaves is bit for bit what an undisturbed run leaves."""

from __future__ import annotations

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from support.crash.judges import is_bit_for_bit
from support.crash.tests import (
    Undisturbed,
    Victim,
    die_at_every_point,
    die_at_every_point_of_a_recovery,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

VICTIM = Victim(
    flow="support.crash.flow:flow",
    judge=is_bit_for_bit,
    middle=CrashPoint("sink.commit(history)", "after", 4),
    acts=("store.create", "store.delete", "sink.commit", "sink.stage"),
    points=6,
    again=("store.create", "restore"),
    outcome="bit for bit equal",
)


def test_every_crash_point_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


def test_every_crash_point_of_a_recovery_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point_of_a_recovery(undisturbed, tmp_path_factory.mktemp, warm_jvm)
