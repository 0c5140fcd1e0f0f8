"""Errors that look like the end of a JVM wait for its end; no other error is held up by a JVM that lives."""

from __future__ import annotations

import io
import socket
import struct
import subprocess
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.serializers import read_int

from boatlift.errors import FencedError, UnavailableError
from boatlift.processes.jvm import SECONDS_TO_DIE, check_jvm, death_of_jvm, raising_jvm_died


class Alive:
    """The process of a JVM that lives; it notes how long its end was waited for."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def wait(self, seconds: float) -> int:
        self.waits.append(seconds)
        raise subprocess.TimeoutExpired("java", seconds)


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> Alive:
    process = Alive()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    return process


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def reset() -> io.BufferedIOBase:
    """Return a stream whose other side has reset the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
        far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        far.close()
        return near.makefile("rb")


def raised_by(what: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as raised:
        what()
    return raised.value


def connect_of_a_sink() -> None:
    socket.create_connection(("127.0.0.1", unused_port()))


def read_of_a_sink() -> None:
    reset().read(4)


def said_by_a_sink() -> None:
    raise RuntimeError("Error while sending rows: Answer from Java side is empty, SparkContext was shut down")


def ends_early() -> None:
    raise EOFError("the answer ended too early")


@pytest.mark.parametrize("fails", [connect_of_a_sink, read_of_a_sink, said_by_a_sink, ends_early])
def test_an_error_of_a_connector_waits_for_no_jvm(alive: Alive, fails: Callable[[], None]) -> None:
    error = raised_by(fails)
    told = UnavailableError("SINK_FAILED", "the sink could not be written")
    told.__cause__ = error
    for each in (error, told):
        assert death_of_jvm(each) is None
    with pytest.raises(UnavailableError, match="SINK_FAILED"), raising_jvm_died():
        raise told
    assert set(alive.waits) == {0.0}


def test_an_error_that_is_a_cause_of_its_own_cause_is_raised() -> None:
    """As one that was carried through a sink in another one, and raised again from that."""
    told, carrier = FencedError("FENCED", "there is a newer owner"), RuntimeError()
    told.__cause__, carrier.__cause__ = carrier, told
    with pytest.raises(FencedError), raising_jvm_died():
        raise told


def a_call() -> None:
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=unused_port()))
    gateway.jvm.java.lang.System.currentTimeMillis()


def says_so() -> None:
    raise PySparkRuntimeError("Cannot call methods on a stopped SparkContext.")


@pytest.mark.parametrize(
    "fails", [a_call, says_so, lambda: read_int(io.BytesIO()), lambda: read_int(reset())],
    ids=["a call", "a stopped context", "an end of rows", "a reset"],
)  # fmt: skip
def test_an_error_of_py4j_or_pyspark_that_has_lost_its_jvm_waits_for_its_end(
    alive: Alive, fails: Callable[[], object]
) -> None:
    error = raised_by(fails)
    told = UnavailableError("STEP_FAILED", "Spark could not run step 3 of sums")
    told.__cause__ = error
    for each in (error, told):
        assert death_of_jvm(each) is None
    assert alive.waits == [SECONDS_TO_DIE] * 2


@pytest.mark.parametrize("looked_at", [True, False])
def test_the_end_of_a_jvm_that_another_process_has_started(monkeypatch: pytest.MonkeyPatch, looked_at: bool) -> None:
    """The gateway has none of the attributes that PySpark sets, as that of a notebook."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=server.getsockname()[1]))
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        if looked_at:
            check_jvm()
            assert death_of_jvm(RuntimeError("a job was cancelled")) is None
            server.accept()[0].close()
    told = death_of_jvm(raised_by(says_so))
    assert told is not None
    assert told.message.startswith("the JVM of Spark died: run the same command again")
    with pytest.raises(UnavailableError, match="JVM_DIED"):
        check_jvm()


def test_a_jvm_that_ends_is_one_error_whichever_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = subprocess.Popen(["false"])
    ended.wait()
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=ended))
    told = death_of_jvm(RuntimeError("a job was cancelled"))
    assert told is not None
    assert told.condition == "JVM_DIED"
    assert "(exit status 1)" in told.message
