"""The flow into a database: its process dies at its acts, and process and server die at any moment, by SIGKILL."""

from __future__ import annotations

import random
import threading

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from connectors.database_cases import Server
from support.crash.databases import has_each_once, make_database
from support.crash.tests import KILLED, Victim, die_at_every_point, place_of, run_undisturbed

pytestmark = [pytest.mark.spark, pytest.mark.crash, pytest.mark.timeout(3600)]

KILLS = 9

VICTIM = Victim(
    flow="support.crash.databases:flow",
    judge=has_each_once,
    middle=CrashPoint("sink.commit(history)", "after", 4),
    acts=("sink.commit", "sink.open"),
    points=4,
    again=(),
    outcome="bit for bit equal",
    make_input=make_database,
)


@pytest.fixture(params=[pytest.param(each, marks=getattr(pytest.mark, each)) for each in ("postgres", "mysql")])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    found: Server = request.getfixturevalue(f"{request.param}_server")
    monkeypatch.setenv("BOATLIFT_CRASH_DATABASE", request.param)
    return found


def test_every_crash_point_is_survived(
    server: Server, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    undisturbed = run_undisturbed(VICTIM, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)


def test_process_and_server_die_at_any_moment(
    server: Server, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    undisturbed = run_undisturbed(VICTIM, tmp_path_factory.mktemp("undisturbed"), warm_jvm)
    draw, died = random.Random(29), 0
    for number in range(3):
        place = place_of(tmp_path_factory.mktemp(f"place{number}"), warm_jvm, VICTIM)
        process = place.start(warm_jvm)
        for kill in range(KILLS):
            threading.Event().wait(draw.uniform(0.2, 2.0))
            if process.poll() is not None:
                break
            died += 1
            if kill % 3 == 2:
                process.kill()
                assert process.wait() == KILLED
                process = place.start(warm_jvm)
            else:
                server.kill()
                server.restart()
        assert process.wait() == 0, place.log.read_text()[-3000:]
        undisturbed.judge(place)
    assert died > KILLS
