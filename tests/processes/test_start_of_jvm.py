"""Ctrl-C at the very moment at which the JVM is started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark import SparkConf, java_gateway

from boatlift.processes.jvm import start_jvm


@pytest.fixture(autouse=True)
def _heeds_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_jvm_that_is_being_started_at_ctrl_c_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(_command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        del options["stderr"]
        started.append(subprocess.Popen(["sleep", "600"], stdin=options["stdin"]))
        os.kill(os.getpid(), signal.SIGINT)  # before the caller knows of the process
        return started[-1]

    monkeypatch.setattr(java_gateway, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        start_jvm(SparkConf(loadDefaults=False))
    assert started[0].poll() == -signal.SIGKILL
    assert vars(java_gateway)["Popen"] is interrupted
