"""The flow from Kafka to Kafka is killed, over a real broker: every row comes out once, in order per key."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from boatlift.processes.warm_jvm import WarmJvm
from boatlift.testing.crash import CrashPoint
from boatlift.testing.kafka_broker import KafkaBroker
from support.crash.kafka import SERVERS, make_topics, sees_each_once
from support.crash.tests import Undisturbed, Victim, die_at_every_point

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.crash, pytest.mark.timeout(3600)]

VICTIM = Victim(
    flow="support.crash.kafka:flow",
    judge=sees_each_once,
    middle=CrashPoint("sink.commit(sums)", "after", 3),
    acts=("sink.commit", "sink.written", "sink.committed", "store.create(runs)"),
    points=4,
    again=(),
    outcome="each row once, in order",
    make_input=make_topics,
)


@pytest.fixture(scope="module", autouse=True)
def _servers(shared_broker: KafkaBroker) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SERVERS, shared_broker.bootstrap)
        yield


def test_every_crash_point_is_survived(
    undisturbed: Undisturbed, tmp_path_factory: pytest.TempPathFactory, warm_jvm: WarmJvm
) -> None:
    die_at_every_point(undisturbed, tmp_path_factory.mktemp, warm_jvm)
