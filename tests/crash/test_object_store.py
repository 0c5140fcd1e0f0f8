"""The first flow with its store in an object store: its process dies at its acts, and before and after requests."""

from __future__ import annotations

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.storage.opening import open_store
from boatlift.storage.verify import verify
from boatlift.testing.crash import CrashPoint
from boatlift.testing.object_server import ObjectServer
from support.crash.judges import is_bit_for_bit
from support.crash.requests import die_at_requests
from support.crash.tests import (
    EVERY_POINT,
    Place,
    Victim,
    die_at_every_point,
    run_undisturbed,
    show,
)

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

REQUESTS = 1 if EVERY_POINT else 9
"""The driver is killed at every so many requests."""


@pytest.fixture(params=["", "store:"])
def victim(object_server: ObjectServer, request: pytest.FixtureRequest) -> Victim:
    return Victim(
        flow="support.crash.flow:flow",
        judge=is_bit_for_bit,
        middle=CrashPoint("sink.commit(history)", "after", 4),
        acts=("store.create", "store.delete", "store.scratch", "store.sizes"),
        points=5,
        again=("store.create", "restore"),
        outcome="bit for bit equal",
        store=lambda folder: object_server.url(folder.name),
        scratch=request.param,
    )


def test_every_crash_point_is_survived(
    victim: Victim, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    undisturbed = run_undisturbed(victim, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


def test_its_process_dies_before_and_after_requests(
    victim: Victim,
    object_server: ObjectServer,
    tmp_path_factory: pytest.TempPathFactory,
    warm_jvm: WarmJvm,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    undisturbed = run_undisturbed(victim, tmp_path_factory.mktemp("undisturbed"), warm_jvm)

    def judge(place: Place) -> None:
        undisturbed.judge(place)
        assert list(verify(open_store(victim.store(place.folder), create=False))) == []

    folder = tmp_path_factory.mktemp
    died = die_at_requests(victim, object_server, folder, warm_jvm, monkeypatch, REQUESTS, judge)
    assert len(died) >= 5
    show(f"{victim.flow} on an object store, at requests", died, victim.outcome)
