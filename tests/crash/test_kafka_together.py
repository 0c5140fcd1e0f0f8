"""Topics that are shown together: killed at each act of their sinks, over a real broker, both have the same steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from boatlift.testing.kafka_broker import KafkaBroker
from support.crash.kafka import ROWS, SERVERS, make_topics, rows_in_both, sees_each_once
from support.crash.tests import EVERY_POINT, KILLED, Undisturbed, Victim, place_of

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(3600)]

ACTS = ("sink.commit", "sink.written", "sink.committed")
VICTIM = Victim(
    flow="support.crash.kafka:joint",
    judge=sees_each_once,
    middle=CrashPoint("sink.commit(cleaned)", "after", 2),
    acts=ACTS,
    points=4,
    again=(),
    outcome="each row once, and each step in both topics",
    make_input=make_topics,
)


@pytest.fixture(scope="module", autouse=True)
def _servers(shared_broker: KafkaBroker) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SERVERS, shared_broker.bootstrap)
        yield


def test_a_step_is_in_both_topics_or_in_none_whenever_its_owner_is_killed(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    of_acts = [each for each in undisturbed.points if each.call.startswith(ACTS)]
    visits = {(each.call, each.when): each.visit for each in of_acts}
    points = of_acts if EVERY_POINT else [CrashPoint(*call, (last + 1) // 2) for call, last in visits.items()]
    seen = set[int]()
    for point in points:
        place = place_of(tmp_path_factory.mktemp("crash"), warm_jvm, VICTIM)
        assert place.die(point) == KILLED
        one, other = rows_in_both(place.folder)
        assert one == other, f"killed at {point}"
        seen.add(one)
        assert place.run() == 0
        assert rows_in_both(place.folder) == (ROWS, ROWS)
        undisturbed.judge(place)
    assert len(points) >= VICTIM.points
    assert len(seen) > 1
