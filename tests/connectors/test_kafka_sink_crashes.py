"""The Kafka sink on a real broker: processes are killed or stopped at lines of a commit (`make crash`: at each)."""

from __future__ import annotations

import os

import pytest

from boatlift.testing.kafka_broker import KafkaBroker
from connectors.kafka_cases import KafkaSinkCase
from connectors.sink_crash_laws import SinkCrashLaws

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(3600)]


class TestChangelog(SinkCrashLaws):
    stride = 1 if os.environ.get("BOATLIFT_CRASH_POINTS") == "all" else 13  # a point takes four seconds

    @pytest.fixture(autouse=True)
    def _broker(self, kafka_broker: KafkaBroker) -> None:
        type(self).case = KafkaSinkCase(kafka_broker.bootstrap, "changelog")
